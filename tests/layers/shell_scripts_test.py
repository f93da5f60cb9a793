#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""What the shell scripts promise: packages, build folders, and what they say."""
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile
import unittest

LIB = pathlib.Path(__file__).resolve().parents[2] / 'scripts' / 'lib'


class ScriptsTest(unittest.TestCase):
    """scripts/lib/*.sh, with programs of the test's own in the place of the system's."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def program(self, name, script):
        path = self.folder / 'bin' / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/sh\n{script}\n')
        path.chmod(0o755)

    def start(self, script):
        """Bash in the folder, with set -e and all of the libraries."""
        begin = f'set -euo pipefail; for file in packages build root guest_kernel arm64; do source {shlex.quote(str(LIB))}/$file.sh; done\n'
        return subprocess.Popen(['bash', '-c', begin + 'weftAsRoot() { "$@"; }\n' + script], cwd=self.folder, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                env={**os.environ, 'PATH': f'{self.folder}/bin:{os.environ["PATH"]}'})

    def printed(self, script):
        return self.start(script).communicate(timeout=60)[0]

    def apt_with(self, sources):
        self.program('apt-get', f"""case $1 in
  update) touch lists ;;
  indextargets) if [ -e lists ]; then printf '%s\\n' {sources}; fi ;;
esac""")

    def test_the_mirror_is_found_where_apt_has_no_lists_yet(self):
        self.apt_with("'Debian http://security/debian-security' 'Debian http://here/debian' 'Debian http://there/debian'")
        self.assertEqual(self.printed('weftMirror 2>/dev/null'), 'http://here/debian\n')
        self.assertEqual(self.printed('rm lists; weftGuestApt kernels trixie true 2>/dev/null; cat kernels/apt-trixie/sources.list'),
                         'deb http://here/debian trixie main\n')

    def test_a_machine_without_a_mirror_says_so(self):
        self.apt_with("'Other http://here/other'")
        self.assertIn('no Debian mirror', self.printed('weftMirror || echo none'))

    def test_apt_hears_of_the_proxies_though_sudo_keeps_none(self):
        self.program('apt-get', 'echo "$1 by ${http_proxy-none}, not for ${no_proxy-none}"')
        self.program('apt-cache', 'exit 1')
        sudo = 'weftAsRoot() { env -i "PATH=$PATH" "$@"; }; weftMissingPackages() { echo wanted; };'
        printed = self.printed(f'{sudo} http_proxy=http://proxy:1 no_proxy=here weftEnsurePackages')
        for command in ('update', 'install'):
            self.assertIn(f'\n{command} by http://proxy:1, not for here\n', printed)

    def test_what_libfuzzer_ends_with_is_no_skip_and_its_words_are_shown(self):
        script = shlex.quote(str(LIB.parents[1] / 'tests' / 'fuzz' / 'run_libfuzzer'))
        for bad in ('-runs=0', '-seed=1'):
            self.program('target', f'[ "$1" != {bad} ] || {{ echo "a crash"; exit 77; }}')
            self.assertEqual(self.printed(f'{script} target corpus || echo status $?'), 'a crash\nstatus 1\n')

    def test_packages_of_arm64_become_one_root_whose_links_stay_inside(self):
        package = self.folder / 'package'
        (package / 'lib').mkdir(parents=True)
        (package / 'usr/lib').mkdir(parents=True)
        (package / 'lib/libm.so.6').write_text('m')
        (package / 'usr/lib/libm.so').symlink_to('/lib/libm.so.6')
        self.program('dpkg-deb', f'tar -c -C {package} .')
        self.assertEqual(self.printed('weftUnpack "$PWD/made" one && cat made/usr/lib/libm.so && readlink made/usr/lib/libm.so'), 'm../../lib/libm.so.6\n')

    def test_a_root_of_arm64_is_made_once_and_nothing_is_left_of_one_that_was_not_finished(self):
        have = f'weftMirror() {{ echo there; }}; weftHaveArm64Root {self.folder}'
        self.program('apt-get', '[ "$1" = update ]')
        self.assertIn('could not be had', self.printed(f'{have} || true'))
        self.assertEqual([path.name for path in self.folder.glob('build*')], [])
        self.program('apt-get', 'grep -q arm64 "$APT_CONFIG" && touch "${APT_CONFIG%/*}/cache/archives/a.deb"')
        self.program('dpkg-deb', 'tar -c -T /dev/null')
        self.assertIn('makes a root', self.printed(have))
        self.assertEqual(self.printed(have), '')

    def have_root(self):
        return f'weftMirror() {{ echo there; }}; weftHaveRoot {self.folder}/root trixie a,b'

    def test_nothing_is_left_of_a_root_that_was_not_finished(self):
        self.program('mmdebstrap', 'mkdir -p "$4"; exit 1')
        self.assertIn('no root', self.printed(f'{self.have_root()} || echo no root'))
        self.assertEqual([path.name for path in self.folder.glob('root*')], [])

    def test_two_callers_make_one_root(self):
        self.program('mmdebstrap', 'echo >>made; sleep 0.5; mkdir "$4"')
        both = [self.start(f'{self.have_root()} && echo there') for _ in range(2)]
        for one in both:
            self.assertTrue(one.communicate(timeout=60)[0].endswith('there\n'))
        self.assertEqual((self.folder / 'made').read_text(), '\n')
        self.assertTrue((self.folder / 'root').is_dir())

    def test_the_source_of_a_build_is_known_whatever_its_name(self):
        for source in ('/a/weft', '/a place/weft', '/a/wéft "x"'):
            build = self.folder / 'build'
            (build / 'meson-info').mkdir(parents=True, exist_ok=True)
            (build / 'build.ninja').touch()
            (build / 'meson-info' / 'meson-info.json').write_text(json.dumps({'directories': {'source': source, 'build': 'b'}}))
            self.assertEqual(self.printed('weftBuildSource build'), source)
        self.program('python3', 'exit 127')
        (build / 'meson-info' / 'meson-info.json').write_text(json.dumps({'directories': {'source': '/a/weft', 'build': 'b'}}))
        self.assertEqual(self.printed('echo "$(weftBuildSource build)"'), '/a/weft\n')

    def test_a_build_goes_on_with_the_compiler_that_is_asked_for(self):
        self.program('meson', 'echo "meson $1"; mkdir -p "$2"')
        c, cpp = (f'rule {rule}_COMPILER\n command = {command} $ARGS -c $in\n' for rule, command in (('c', 'cc'), ('cpp', 'ccache clang++-14 -m64')))
        for compilers, said in (('', 'meson configure'), ('CC=cc CXX="clang++-14 -m64"', 'meson configure'),
                                ('CXX=g++', 'build: build is not by g++; starting it again\nmeson setup'),
                                ('CC=c CXX="clang++-14 -m64"', 'build: build is not by c; starting it again\nmeson setup')):
            (self.folder / 'build').mkdir()
            (self.folder / 'build' / 'build.ninja').write_text(c + cpp)
            printed = self.printed(f'unset CC CXX; weftBuildSource() {{ pwd; }}; {compilers} weftConfigure "$PWD" build -Da=b; rm -r build')
            self.assertEqual(printed, said + '\n', compilers)
        (self.folder / 'build').mkdir()
        (self.folder / 'build' / 'build.ninja').write_text(cpp)  # no C is compiled in it
        self.assertEqual(self.printed('weftCompiles build c clang && echo yes'), 'yes\n')

    def test_a_release_wants_the_packages_of_its_kinds_alone(self):
        for kinds, wanted in (('', ['debhelper', 'rpm']), ('deb wheel', ['debhelper']), ('rpm', ['rpm']), ('wheel', [])):
            listed = [line.split()[0] for line in self.printed(f'weftReleasePackages {kinds}').splitlines()]
            self.assertEqual([name for name in listed if name in ('debhelper', 'rpm')], wanted, kinds)
            self.assertIn('git', listed)

    def test_the_parts_that_a_build_lacks_are_named(self):
        (self.folder / 'build/providers/ofi/libweft-ofi.a.p').mkdir(parents=True)
        self.assertEqual(self.printed('weftSaySkipped build'), 'skipped: the verbs provider (no headers: libibverbs-dev)\n')
        (self.folder / 'build/providers/verbs/libweft-verbs.a.p').mkdir(parents=True)
        self.assertEqual(self.printed('weftSaySkipped build'), 'skipped: nothing\n')

    def checkout(self):
        """A copy of the scripts, whose sources git does not know."""
        shutil.copytree(LIB.parent, self.folder / 'scripts')
        (self.folder / 'build-release').mkdir()
        (self.folder / 'build-release' / 'compile_commands.json').touch()
        return self.folder

    def test_sources_that_cannot_be_listed_are_not_found_to_be_good(self):
        for program in ('clang-format', 'clang-tidy'):
            self.program(program, 'echo version 14.')
        self.checkout()
        for script in ('format --check', 'tidy'):
            printed = self.printed(f'CLANG_FORMAT=clang-format scripts/{script} || echo bad')
            self.assertIn('error: git names no sources', printed)
            self.assertTrue(printed.endswith('bad\n'), printed)

    def test_the_soak_builds_by_itself_from_the_start_and_says_what_is_wrong(self):
        self.program('meson', 'echo "meson $1"')
        self.program('ninja', 'echo "soak.cc: error"; exit 1')
        self.checkout()  # its build folder is what an interrupted run left
        printed = self.printed('mkdir .cache; exec 9>.cache/build-release.lock; flock 9; (sleep 0.5; flock -u 9) & scripts/soak || echo bad')
        self.assertRegex(printed, r'(?s)another run is building .*starting it again\nmeson setup\nsoak.cc: error\nerror: .*bad\n$')


if __name__ == '__main__':
    unittest.main()
