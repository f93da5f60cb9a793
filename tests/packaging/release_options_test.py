#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""The options of scripts/release that it refuses before it builds anything, and the home page that a wheel names.

usage: release_options_test.py
"""
import os
import pathlib
import subprocess
import sys
import unittest
from unittest import mock

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / 'packaging/wheel'))
import backend  # noqa: E402


class ReleaseOptions(unittest.TestCase):
    def refused(self, *arguments):
        done = subprocess.run([TOP / 'scripts/release', *arguments], capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 2, done.stdout)
        return done.stderr

    def test_what_is_wrong_is_named(self):
        self.assertIn("no package is called 'dbe'; there are source", self.refused('--only', 'dbe'))
        self.assertIn("unknown option '--home'", self.refused('--home', 'https://weft.example.org'))
        for wrong in ('', 'weft.example.org', 'https://', 'https://weft.example.org/a b', 'https://weft.example.org/%{name}', 'https://x"y'):
            self.assertIn(f"--homepage '{wrong}' is no address", self.refused('--homepage', wrong))

    def test_a_wheel_names_the_home_page_of_its_builder(self):
        address = 'https://weft.example.org/?a=1&b'
        with mock.patch.dict(os.environ, {'WEFT_HOMEPAGE': address}):
            self.assertIn(f'\nHome-page: {address}\nLicense: ', backend.metadata())
        with mock.patch.dict(os.environ):
            os.environ.pop('WEFT_HOMEPAGE', None)
            self.assertNotIn('Home-page', backend.metadata())


if __name__ == '__main__':
    unittest.main()
