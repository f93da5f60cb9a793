#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Makes a cluster of the examples a text of the program, so that its numbers stand in one file.

usage: embed_clusters.py P5_CLUSTER OUTPUT
"""
import pathlib
import sys

text = pathlib.Path(sys.argv[1]).read_text(encoding='utf-8')
pathlib.Path(sys.argv[2]).write_text(f'constexpr const char* kP5ClusterText = R"json({text})json";\n', encoding='utf-8')
