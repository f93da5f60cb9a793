#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Writes the manual as one HTML page: README, docs/ and what they name, in the order of a reader.

usage: make_html.py CMARK VERSION TOP OUTPUT

CMARK is cmark-gfm. A link from one page to another becomes one inside the page; a link to a page that is not there is an error.
"""
import html
import pathlib
import posixpath
import re
import subprocess
import sys

PAGES = ['README.md', 'docs/jobs.md', 'docs/gpudirect.md', 'docs/collectives.md', 'docs/one-sided.md', 'docs/operate.md', 'docs/troubleshooting.md',
         'docs/environment.md', 'docs/perf.md', 'docs/scale.md',
         'docs/trace.md', 'docs/metrics.md', 'docs/nccl.md', 'docs/tuner.md', 'docs/compatibility.md', 'docs/performance.md', 'CHANGELOG.md', 'CONTRIBUTING.md',
         'SECURITY.md', 'docs/design.md', 'docs/internals/memory-order.md', 'docs/glossary.md', 'docs/wire.md', 'docs/testing.md', 'docs/simulation.md', 'tests/softefa/README.md', 'tests/softgpu/README.md']
STYLE = ('body{font:16px/1.5 sans-serif;max-width:60em;margin:auto;padding:1em}pre{background:#f4f4f4;padding:.6em;overflow-x:auto}'
         'table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2em .6em;vertical-align:top}code{font-size:90%}'
         'section{border-top:3px solid #ccc;margin-top:2em}')


def anchor(page):
    return re.sub(r'\W+', '-', page.removesuffix('.md')).lower()


def slug(heading):
    words = html.unescape(re.sub(r'<[^>]+>', '', heading)).lower()
    return re.sub(r' ', '-', re.sub(r'[^\w\- ]', '', words))


class Page:
    def __init__(self, cmark, top, name):
        self.name = name
        self.top = top
        text = (top / name).read_text(encoding='utf-8')
        self.body = subprocess.run([cmark, '-e', 'table', '-t', 'html'], input=text, capture_output=True, text=True, check=True).stdout
        self.title = re.search(r'<h1>(.*?)</h1>', self.body).group(1)
        self.anchors = set()
        self.body = re.sub(r'<h(\d)>(.*?)</h\d>', self.heading, self.body)

    def heading(self, found):
        self.anchors.add(slug(found.group(2)))
        return f'<h{found.group(1)} id="{anchor(self.name)}--{slug(found.group(2))}">{found.group(2)}</h{found.group(1)}>'

    def link(self, pages, found):
        target, _, place = found.group(1).partition('#')
        if ':' in target:
            return found.group(0)
        name = posixpath.normpath(posixpath.join(posixpath.dirname(self.name), target)) if target else self.name
        if not name.endswith('.md') and (self.top / name).is_file():
            return f'href="{posixpath.basename(name)}"'  # the licence lies beside
        if name not in pages:
            sys.exit(f'{self.name} has a link to {found.group(1)}, which is no page of the manual')
        if place and place not in pages[name].anchors:
            sys.exit(f'{self.name} has a link to {found.group(1)}, and {name} has no heading "{place}"')
        return f'href="#{anchor(name)}{"--" + place if place else ""}"'


def main(cmark, version, top, output):
    pages = {name: Page(cmark, pathlib.Path(top), name) for name in PAGES}
    missing = sorted(path.relative_to(top).as_posix() for path in pathlib.Path(top, 'docs').glob('**/*.md')
                     if path.relative_to(top).as_posix() not in pages)
    if missing:
        sys.exit(f'not in the manual: {", ".join(missing)}')
    contents = ''.join(f'<li><a href="#{anchor(page.name)}">{page.title}</a></li>' for page in pages.values())
    sections = ''.join(f'<section id="{anchor(page.name)}">'
                       + re.sub(r'href="([^"]*)"', lambda found, page=page: page.link(pages, found), page.body) + '</section>'
                       for page in pages.values())
    pathlib.Path(output).write_text(
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>weft {version}</title><style>{STYLE}</style></head>'
        f'<body><ul>{contents}</ul>{sections}</body></html>\n', encoding='utf-8')


if __name__ == '__main__':
    main(*sys.argv[1:])
