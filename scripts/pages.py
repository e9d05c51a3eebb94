# SPDX-License-Identifier: BSD-2-Clause
"""pages.py FOLDER: README, guides, design notes and the manual as web pages that need no server:
a landing page, search, and a dark mode where the reader's system asks for it.

Run by scripts/html. Ends with 1 if a link of a page leads nowhere. What is read of Markdown is what
our pages use: headings, paragraphs, lists, tables, code, links, images, bold and italic text.
"""
import glob
import html
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SECTIONS = (  # of the page that lists all, and their pages in order
    ("Begin", ("README.md", "INSTALL.md", "docs/performance.md", "docs/reliability.md")),
    ("Guides", ("docs/guide/programs.md", "docs/guide/containers.md", "docs/guide/services.md",
                "docs/guide/frameworks.md",
                "docs/guide/speed.md", "docs/guide/trace.md",
                "docs/guide/probes.md", "docs/guide/pingpong.md", "docs/guide/python.md",
                "docs/guide/calls.md", "docs/guide/conformance.md", "examples/README.md")),
    ("Project", ("NEWS.md", "SECURITY.md", "CONTRIBUTING.md")),
    ("Design", ("docs/design/*.md",)),
)
ELSEWHERE = "https://manpages.debian.org/"
STYLE = """
:root { --back: #fff; --text: #1c1e21; --dim: #5b6470; --line: #d9dee4; --code: #f4f6f8;
 --link: #0b5cad; }
@media (prefers-color-scheme: dark) { :root { --back: #15181c; --text: #e3e6ea; --dim: #9aa4b0;
 --line: #343b43; --code: #1f242a; --link: #7db7f5; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text);
 font: 1rem/1.55 system-ui, sans-serif; }
header { position: sticky; top: 0; background: var(--back); border-bottom: 1px solid var(--line);
 padding: .5em 1em; display: flex; flex-wrap: wrap; gap: .3em 1.2em; align-items: center;
 z-index: 1; }
header b { font-size: 1.1em; }
header a { text-decoration: none; }
#find { margin-left: auto; position: relative; flex: 0 1 16em; }
#find input { width: 100%; font: inherit; padding: .25em .6em; color: inherit;
 background: var(--code); border: 1px solid var(--line); border-radius: 4px; }
#found { position: absolute; right: 0; width: min(32em, 92vw); max-height: 75vh; overflow: auto;
 background: var(--back); border: 1px solid var(--line); border-radius: 4px; }
#found:empty { display: none; }
#found a { display: block; padding: .4em .8em; border-bottom: 1px solid var(--line); }
#found small { display: block; color: var(--dim); }
main { max-width: 54em; margin: 0 auto; padding: 1em 1em 4em; }
a { color: var(--link); }
h1, h2, h3 { line-height: 1.25; margin: 1.6em 0 .5em; }
h1.Sh { font-size: 1.25em; border-bottom: 1px solid var(--line); }
h2.Ss { font-size: 1.05em; border: 0; }
@media (max-width: 40em) { #find { flex: 1 1 100%; } }
h2 { border-bottom: 1px solid var(--line); padding-bottom: .2em; }
pre, code { font: .92em/1.45 ui-monospace, monospace; background: var(--code); border-radius: 3px; }
code { padding: .1em .25em; }
code.Fl { white-space: nowrap; }
pre { padding: .7em 1em; overflow-x: auto; }
pre code { padding: 0; font-size: 1em; }
img { max-width: 100%; background: #fff; border-radius: 4px; }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; }
td, th { border: 1px solid var(--line); padding: .3em .6em; text-align: left;
 vertical-align: top; }
table.head, table.foot { width: 100%; color: var(--dim); }
table.head td, table.foot td, table.Nm td { border: 0; }
td.head-vol { text-align: center; }
td.head-rtitle, td.foot-os { text-align: right; }
@media (max-width: 40em) { td.head-vol, td.head-rtitle { display: none; } }
.Bl-compact > dd { margin-bottom: 0; }
dd { margin-bottom: .6em; }
.permalink { color: inherit; text-decoration: none; }
"""
SCRIPT = """
const input = document.querySelector('#find input'), found = document.getElementById('found');
input.addEventListener('input', () => {
 const words = input.value.toLowerCase().split(/\\s+/).filter(w => w);
 found.replaceChildren();
 if (!words.length) return;
 PAGES.map(([url, title, text]) => {
  const name = title.toLowerCase(), all = text.toLowerCase();
  if (!words.every(w => name.includes(w) || all.includes(w))) return null;
  const score = words.reduce((n, w) => n + (name.includes(w) ? 50 : 0) +
   (all.split(w).length - 1) * 3000 / (all.length + 3000), 0);
  return [score, url, title, text, all.indexOf(words[0])];
 }).filter(p => p).sort((a, b) => b[0] - a[0]).slice(0, 12).forEach(p => {
  const a = document.createElement('a'), small = document.createElement('small');
  a.href = ROOT + p[1];
  a.textContent = p[2];
  small.textContent = p[4] < 0 ? '' : p[3].slice(Math.max(0, p[4] - 40), p[4] + 80);
  a.append(small);
  found.append(a);
 });
 if (!found.childNodes.length) found.textContent = 'Nothing has these words.';
});
input.addEventListener('keydown', e => {
 const first = found.querySelector('a');
 if (e.key === 'Enter' && first) location = first.href;
 if (e.key === 'Escape') { input.value = ''; found.replaceChildren(); }
});
"""


def slug(text):
    text = re.sub(r"<[^>]*>", "", text).lower()
    return re.sub(r" ", "-", re.sub(r"[^\w\- ]", "", html.unescape(text)))


class Markdown:
    """A page of Markdown; to(link) is what a link becomes, or None: text alone."""

    def __init__(self, to):
        self.to = to

    def link(self, m):
        where = self.to(m[2])
        if m[0].startswith("!"):
            return f'<img src="{where}" alt="{m[1]}">'
        return f'<a href="{where}">{m[1]}</a>' if where else m[1]

    def inline(self, text):
        codes = []

        def keep(m):
            codes.append(html.escape(m[2].strip()))
            return f"\0{len(codes) - 1}\0"

        text = re.sub(r"(`+)(.+?)\1", keep, text, flags=re.S)
        text = html.escape(text, quote=False)
        text = re.sub(r"!?\[([^\]]*)\]\(([^)\s]+)\)", self.link, text)
        text = re.sub(r"\[(\w+)\](?=[\s,.;)]|$)", self.named, text)
        text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", text, flags=re.S)
        text = re.sub(r"(?<![\w*])\*([^*\s][^*]*)\*(?!\w)", r"<em>\1</em>", text)
        return re.sub(r"\0(\d+)\0", lambda m: f"<code>{codes[int(m[1])]}</code>", text)

    def named(self, m):
        where = self.names.get(m[1])
        return f'<a href="{where}">{m[1]}</a>' if where else m[0]

    def page(self, text):
        text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
        self.names = dict(re.findall(r"^\[(\w+)\]: (\S+)$", text, re.M))
        text = re.sub(r"^\[\w+\]: \S+$\n?", "", text, flags=re.M)
        return "\n".join(self.blocks(text.split("\n")))

    def blocks(self, lines):
        i = 0
        while i < len(lines):
            line = lines[i]
            begin = i
            if not line.strip():
                i += 1
            elif line.startswith("```"):
                i = next(k for k in range(i + 1, len(lines)) if lines[k].startswith("```")) + 1
                yield self.code(lines[begin + 1:i - 1])
            elif line.startswith("    "):
                while i < len(lines) and (lines[i].startswith("    ") or not lines[i].strip()):
                    i += 1
                yield self.code([part[4:] for part in lines[begin:i]])
            elif m := re.match(r"(#+) (.*)", line):
                text, n = self.inline(m[2]), len(m[1])
                i += 1
                yield f'<h{n} id="{slug(text)}">{text}</h{n}>'
            elif line.startswith("|"):
                while i < len(lines) and lines[i].startswith("|"):
                    i += 1
                yield self.table(lines[begin:i])
            elif re.match(r"([-*]|\d+\.) ", line):
                while i < len(lines) and (i == begin or re.match(r"([-*]|\d+\.) |  ", lines[i]) or
                                          not lines[i].strip() and i + 1 < len(lines) and
                                          lines[i + 1].startswith("  ")):
                    i += 1
                yield self.items(lines[begin:i])
            else:
                while i < len(lines) and lines[i].strip() and not (
                        i > begin and re.match(r"```|#+ |\||([-*]|\d+\.) ", lines[i])):
                    i += 1
                yield f"<p>{self.inline(chr(10).join(lines[begin:i]))}</p>"

    @staticmethod
    def code(lines):
        return f"<pre><code>{html.escape(chr(10).join(lines).rstrip())}</code></pre>"

    def items(self, lines):
        kind = "ol" if lines[0][0].isdigit() else "ul"
        items = []
        for line in lines:
            if m := re.match(r"([-*]|\d+\.) +(.*)", line):
                items.append([m[2]])
                indent = len(line) - len(m[2])
            else:
                items[-1].append(line[min(indent, len(line) - len(line.lstrip())):])
        inner = []
        for item in items:
            text = "\n".join(self.blocks(item))
            inner.append("<li>" + re.sub(r"^<p>(.*?)</p>", r"\1", text, flags=re.S) + "</li>")
        return f"<{kind}>{''.join(inner)}</{kind}>"

    def table(self, lines):
        def cells(line, tag):
            parts = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            return "<tr>" + "".join(
                # A line does not end within a number such as 18 800.
                f"<{tag}>" + re.sub(r"(?<=\d) (?=\d{3}(?!\d))", "\N{NO-BREAK SPACE}",
                                    self.inline(p.strip().replace("\\|", "|"))) + f"</{tag}>"
                for p in parts) + "</tr>"

        head = cells(lines[0], "th") if re.sub(r"[|\s]", "", lines[0]) else ""
        return ('<div class="wide"><table>' + head +
                "".join(cells(line, "td") for line in lines[2:]) + "</table></div>")


class Site:
    def __init__(self, to):
        self.folder = to
        self.found = []  # (url, title, text) of each page
        self.pages = []  # (url, title, its HTML)

    def add(self, url, title, body):
        text = html.unescape(re.sub(r"<[^>]*>", " ", body))
        self.pages.append((url, title, body))
        self.found.append((url, title, re.sub(r"\s+", " ", text)))

    def markdown(self, name):
        here = posixpath.dirname(name)

        def to(link):
            if "://" in link or link.startswith(("#", "mailto:")):
                return link
            path, _, part = link.partition("#")
            path = posixpath.normpath(posixpath.join(here, path))
            if path == "docs/man":
                target = "man/index.html"
            elif path.endswith(".md"):
                target = url_of(path)
            elif os.path.isfile(path):
                target = path
                copy = os.path.join(self.folder, path)
                os.makedirs(os.path.dirname(copy), exist_ok=True)
                shutil.copyfile(path, copy)
            else:
                return None  # a folder of the source
            return posixpath.relpath(target, here or ".") + (f"#{part}" if part else "")

        with open(name, encoding="utf-8") as f:
            body = Markdown(to).page(f.read())
        title = re.search(r"<h1[^>]*>(.*?)</h1>", body, re.S)
        self.add(url_of(name), re.sub(r"<[^>]*>", "", title[1]) if title else name, body)

    def manual(self):
        pages = sorted(glob.glob("docs/man/*.[1357]"))
        urls = {}
        for page in pages:
            url = os.path.basename(page) + ".html"
            with open(page, encoding="utf-8") as f:
                for name in re.findall(r"^\.Nm ([a-z][a-z_0-9-]*)(?: ,)?$", f.read(), re.M):
                    urls.setdefault(f"{name}.{page[-1]}.html", url)
            urls[url] = url
        listed = {}
        for page in pages:
            body = subprocess.run(["mandoc", "-T", "html", "-O", "fragment,man=%N.%S.html", page],
                                  check=True, text=True, stdout=subprocess.PIPE).stdout
            body = re.sub(r'href="([\w.+-]+\.\d\w*)\.html"', lambda m:
                          f'href="{urls[m[1] + ".html"]}"' if m[1] + ".html" in urls
                          else f'href="{ELSEWHERE}{m[1]}"', body)
            body = re.sub(r"<table(?! class=.(?:head|foot|Nm)).*?</table>",
                          r'<div class="wide">\g<0></div>', body, flags=re.S)
            name, section = os.path.basename(page).rsplit(".", 1)
            with open(page, encoding="utf-8") as f:
                what = re.search(r"^\.Nd (.*)", f.read(), re.M)[1]
            self.add(f"man/{name}.{section}.html", f"{name}({section})", body)
            listed.setdefault(section, []).append(
                f'<dt><a href="{name}.{section}.html">{name}({section})</a></dt>'
                f"<dd>{html.escape(what)}</dd>")
        kinds = {"7": "Overviews", "1": "Commands", "5": "Files", "3": "Calls"}
        self.add("man/index.html", "Manual", "<h1>Manual</h1>" + "".join(
            f"<h2>{kinds[s]}</h2><dl>{''.join(listed[s])}</dl>" for s in "7153"))

    def everything(self):
        body = "<h1>All pages</h1>"
        titles = {url: title for url, title, _ in self.pages}
        for section, names in SECTIONS:
            urls = [url_of(n) for pattern in names for n in sorted(glob.glob(pattern))]
            body += f"<h2>{section}</h2><ul>" + "".join(
                f'<li><a href="{url}">{titles[url]}</a></li>' for url in urls) + "</ul>"
        body += '<h2>Manual</h2><ul><li><a href="man/index.html">All pages of the manual</a></ul>'
        self.add("all.html", "All pages", body)

    def write(self):
        for url, title, body in self.pages:
            root = "../" * url.count("/")
            out = os.path.join(self.folder, url)
            os.makedirs(os.path.dirname(out), exist_ok=True)
            links = "".join(f'<a href="{root}{to}">{text}</a>' for to, text in (
                ("INSTALL.html", "Install"), ("docs/guide/programs.html", "Guide"),
                ("man/index.html", "Manual"), ("docs/performance.html", "Performance"),
                ("all.html", "All pages")))
            with open(out, "w", encoding="utf-8") as f:
                f.write(f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title if title == 'libexs' else title + ' - libexs'}</title>
<link rel="stylesheet" href="{root}style.css"></head><body>
<header><a href="{root}index.html"><b>libexs</b></a>{links}
<div id="find"><input type="search" placeholder="Search" aria-label="Search all pages">
<div id="found"></div></div></header>
<main>
{body}
</main>
<script>const ROOT = "{root}";</script>
<script src="{root}pages.js"></script><script src="{root}search.js"></script>
</body></html>
""")
        for name, text in (("style.css", STYLE), ("search.js", SCRIPT),
                           ("pages.js", f"const PAGES = {json.dumps(self.found)};")):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as f:
                f.write(text)

    def broken(self):
        """Links that lead nowhere, within the site: to no page, or to no place of it."""
        places = {url: set(re.findall(r'id="([^"]*)"', body)) for url, _, body in self.pages}
        for url, _, body in self.pages:
            for link in re.findall(r'(?:href|src)="([^"]*)"', body):
                if "://" in link or link.startswith("mailto:"):
                    continue
                path, _, part = html.unescape(link).partition("#")
                to = posixpath.normpath(posixpath.join(posixpath.dirname(url), path)
                                        ) if path else url
                if not os.path.isfile(os.path.join(self.folder, to)):
                    yield f"{url}: there is no {link}"
                elif part and to in places and part not in places[to]:
                    yield f"{url}: there is no place {link}"


def url_of(name):
    return "index.html" if name == "README.md" else re.sub(r"\.md$", ".html", name)


def main():
    folder = os.path.abspath(sys.argv[1])
    os.chdir(SOURCE)
    site = Site(folder)
    for _, names in SECTIONS:
        for name in names:
            for page in sorted(glob.glob(name)):
                site.markdown(page)
    site.manual()
    site.everything()
    site.write()
    broken = list(site.broken())
    print(*broken, sep="\n", end="\n" if broken else "", file=sys.stderr)
    print(os.path.join(folder, "index.html"))
    sys.exit(bool(broken))


main()
