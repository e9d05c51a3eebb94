# SPDX-License-Identifier: BSD-2-Clause
"""The echo of gRPC in C++ (tests/apps/rpc.cc), which a test and a benchmark use."""
import os
import shutil
import subprocess

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../tests/apps')


def missing():
    """The name of a package that is needed, or None."""
    for program, package in (('g++', 'g++'), ('pkg-config', 'pkg-config'),
                             ('protoc', 'protobuf-compiler'),
                             ('grpc_cpp_plugin', 'protobuf-compiler-grpc')):
        if not shutil.which(program):
            return package
    for module, package in (('grpc++', 'libgrpc++-dev'), ('protobuf', 'libprotobuf-dev')):
        if subprocess.run(['pkg-config', '--exists', module], check=False).returncode:
            return package
    return None


def build(run, folder):
    """The program, made in the folder by run(command), which returns what the
    command says."""
    run(['protoc', '-I' + SOURCE, '--cpp_out=' + folder, '--grpc_out=' + folder,
         '--plugin=protoc-gen-grpc=' + shutil.which('grpc_cpp_plugin'), 'rpc.proto'])
    flags = run(['pkg-config', '--cflags', '--libs', 'grpc++', 'protobuf'])
    flags = flags.decode() if isinstance(flags, bytes) else flags
    program = os.path.join(folder, 'rpc')
    run(['g++', '-std=c++17', '-O1', '-Wall', '-I' + folder, '-o', program,
         os.path.join(SOURCE, 'rpc.cc'), folder + '/rpc.pb.cc',
         folder + '/rpc.grpc.pb.cc', *flags.split()])
    return program
