-- SPDX-License-Identifier: BSD-2-Clause
-- Echo PORT: an echo server with threads of the language on epoll.
import Control.Concurrent (forkIO)
import Control.Monad (forever, unless)
import qualified Data.ByteString as B
import Network.Socket
import Network.Socket.ByteString (recv, sendAll)
import System.Environment (getArgs)

serve :: Socket -> IO ()
serve s = do
  bytes <- recv s 65536
  unless (B.null bytes) $ sendAll s bytes >> serve s

main :: IO ()
main = do
  [port] <- getArgs
  l <- socket AF_INET Stream defaultProtocol
  setSocketOption l ReuseAddr 1
  bind l $ SockAddrInet (read port) $ tupleToHostAddress (127, 0, 0, 1)
  listen l 16
  forever $ do
    (s, _) <- accept l
    forkIO $ serve s >> close s
