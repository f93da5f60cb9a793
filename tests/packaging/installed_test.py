#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""What `meson install` puts down, and that it works from there.

usage: installed_test.py BUILD VERSION
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, VERSION = pathlib.Path(sys.argv[1]), sys.argv[2]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(('WEFT_', 'NCCL_', 'DESTDIR'))}
CLEAN['WEFT_CONF'] = ''
PREFIX = 'usr/local'
FILES = ['bin/weft', 'bin/weft-aggd', 'share/doc/weft-nccl/COPYING', 'share/doc/weft-nccl/examples/weft.conf',
         'share/doc/weft-nccl/weft.spdx.json', 'share/man/man1/weft.1', 'share/man/man5/weft.conf.5',
         'share/man/man7/weft.7', 'share/man/man8/weft-aggd.8', 'share/bash-completion/completions/weft', 'share/zsh/site-functions/_weft',
         'lib/systemd/system/weft-aggd.service', 'share/weft/alerts.yml', 'share/weft/grafana-dashboard.json',
         'share/doc/weft-nccl/scale-edsr.svg', 'share/doc/weft-nccl/scale-10000.svg']
TOP = pathlib.Path(__file__).resolve().parents[2]
COMMANDS = ['autopsy', 'doctor', 'info', 'perf', 'plan', 'report', 'sim', 'state', 'stats', 'top', 'trace']
FILES += [f'share/weft/plan/{path.name}' for path in (TOP / 'tools/plan/examples').iterdir()]

if shutil.which('cmark-gfm'):
    FILES.append('share/doc/weft-nccl/manual.html')


def run(*command, **settings):
    return subprocess.run(command, env={**CLEAN, **settings}, capture_output=True, text=True, check=False, timeout=120)


class InstalledTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.top = pathlib.Path(cls.folder.name)
        done = run('meson', 'install', '-C', str(BUILD), '--no-rebuild', DESTDIR=str(cls.top))
        assert done.returncode == 0, done.stdout + done.stderr
        cls.prefix = cls.top / PREFIX
        cls.weft = str(cls.prefix / 'bin/weft')
        cls.plugin = next(cls.prefix.glob('lib*/**/libnccl-net-weft.so'))
        cls.baseline = cls.plugin.parent / 'weft/libnccl-net-plain-sockets.so'

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def page(self, name):
        return next(self.prefix.glob(f'share/man/man*/{name}')).read_text()

    def options(self, *command):
        """Every option that --help shows."""
        text = run(self.weft, *command, '--help').stdout
        return [name for line in text.splitlines() if line.startswith('  -') for name in line.split()[0].split(',')]

    def test_the_tree_is_this_and_nothing_else(self):
        found = sorted(path.relative_to(self.top).as_posix() for path in self.top.rglob('*') if not path.is_dir())
        plugins = [self.plugin, self.plugin.with_name('libnccl-net-record.so'), self.baseline]
        wanted = [f'{PREFIX}/{name}' for name in FILES] + [plugin.relative_to(self.top).as_posix() for plugin in plugins]
        self.assertEqual(found, sorted(wanted))

    def test_it_runs_from_there(self):
        found = run(self.weft, 'info', '--json', WEFT_PROVIDER='local')
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertEqual(json.loads(found.stdout)['taken'], 'local')
        results = self.top / 'results.json'
        done = run(self.weft, 'perf', 'all_reduce', '-n', '2', '-b', '8', '-e', '64K', '-f', '8', '--iters', '5', '--json',
                   str(results))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(str(self.plugin), done.stdout + results.read_text())
        results.unlink()

    def test_it_compares_with_plain_sockets_at_once(self):
        results = self.top / 'comparison.json'
        done = run(self.weft, 'perf', 'sendrecv', '-n', '2', '-b', '8', '-e', '64K', '-f', '64', '--iters', '3', '--rounds', '2',
                   '--baseline', '--json', str(results))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(json.loads(results.read_text())['conditions']['other_plugin'], str(self.baseline))
        results.unlink()

    def test_it_has_no_providers_of_tests(self):
        for named in ('loop', 'loop(rails=2)', 'fault(fault=delay):tcp'):
            found = run(self.weft, 'info', '--json', WEFT_PROVIDER=named)
            self.assertEqual(found.returncode, 1, found.stdout)
            failure = json.loads(found.stdout)['failure']
            self.assertIn("loop and fault are for weft's own tests, and this copy of weft is without them", failure)
            self.assertNotIn('fault(RULES)', failure)
        self.assertNotRegex(run(self.weft, '--version').stdout, r'\b(loop|fault)\b')
        done = run(self.weft, 'perf', 'all_reduce', '-n', '2', '-b', '8', '-e', '8', WEFT_PROVIDER='loop')
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("loop and fault are for weft's own tests", done.stdout + done.stderr)
        self.assertNotRegex(run('nm', '-C', str(self.plugin)).stdout, r'weft::(loop|fault|world|sim)::')
        self.assertNotRegex(run('nm', '-C', self.weft).stdout, r'weft::fault::')  # weft sim is made of the other

    def test_binaries_say_what_they_are(self):
        said = run(self.weft, '--version').stdout.splitlines()[0]
        self.assertRegex(said, rf'^weft {re.escape(VERSION)} \(commit [0-9a-f]+(-dirty)?\)$')
        self.assertEqual(run(self.weft, 'info', '--version').stdout.splitlines()[0], said)
        for binary in (self.weft, str(self.plugin)):
            self.assertTrue(said in run('strings', '-a', binary).stdout.splitlines(), f'{said} is not in {binary}')
            self.assertRegex(run('readelf', '-n', binary).stdout, r'Build ID: [0-9a-f]{40}')
        for library in (self.plugin, self.plugin.with_name('libnccl-net-record.so'), self.baseline):  # opened by name, never linked with
            self.assertNotIn('SONAME', run('readelf', '-d', str(library)).stdout, library.name)

    def test_the_tool_needs_what_the_plugin_needs(self):
        for binary in (self.weft, str(self.plugin), str(self.baseline)):
            needed = re.findall(r'\(NEEDED\).*\[(.*)\]', run('readelf', '-d', binary).stdout)
            self.assertEqual([name for name in needed if not re.match(r'(libc|libm|ld-linux.*)\.so', name)], [])
        newest = max(tuple(map(int, version)) for version in
                     re.findall(r'GLIBC_(\d+)\.(\d+)', run('readelf', '-V', self.weft).stdout))
        own = tuple(map(int, os.confstr('CS_GNU_LIBC_VERSION').split()[1].split('.')[:2]))
        self.assertLessEqual(newest, (2, 35) if own <= (2, 36) else own)

    def test_the_manual_names_every_option_and_setting(self):
        page = self.page('weft.1').replace('\\-', '-')
        for command in ((), *((name,) for name in COMMANDS)):
            options = self.options(*command)
            self.assertGreater(len(options), 1)
            for option in options:
                self.assertIn(f'\\fB{option}\\fR', page)
        settings = json.loads(run(self.weft, 'info', '--config', '--json').stdout)['config']
        for row in settings:
            self.assertIn(f'\\fB{row["name"]}\\fR', self.page('weft.conf.5'))

    @unittest.skipUnless(shutil.which('groff'), 'groff is not here')
    def test_the_manual_is_what_roff_takes(self):
        for name in ('weft.1', 'weft.conf.5', 'weft.7'):
            path = next(self.prefix.glob(f'share/man/man*/{name}'))
            done = run('groff', '-man', '-Tutf8', '-ww', '-z', str(path))
            self.assertEqual((done.returncode, done.stderr), (0, ''))
            self.assertEqual(re.findall(r'@\w+@', self.page(name)), [])

    def complete(self, *words):
        script = self.prefix / 'share/bash-completion/completions/weft'
        line = ' '.join(f"'{word}'" for word in words)
        done = run('bash', '-c', f'source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _weft; '
                                 'printf "%s\\n" "${COMPREPLY[@]}"')
        self.assertEqual(done.stderr, '')
        return done.stdout.split()

    def test_bash_completes_commands_and_options(self):
        self.assertEqual(self.complete('weft', 'in'), ['info'])
        self.assertEqual(sorted(word for word in self.complete('weft', '') if word[0] != '-'), COMMANDS)
        self.assertEqual(self.complete('weft', 'info', '--conf'), ['--config'])
        self.assertEqual(sorted(self.complete('weft', 'perf', '--compare')), ['--compare', '--compare-env'])
        self.assertEqual(self.complete('weft', 'info', '--compare'), [])
        self.assertEqual(self.complete('weft', 'doctor', '--fix'), ['--fix-script'])
        self.assertEqual(self.complete('weft', 'perf', 'all_r'), ['all_reduce'])
        self.assertEqual(sorted(self.complete('weft', 'perf', '--op', 'm')), ['max', 'min'])
        self.assertEqual(sorted(self.complete('weft', 'top', '--sort', '')), ['busy', 'latency', 'name', 'rate', 'wait'])
        os.makedirs('folder-of-reports', exist_ok=True)
        self.addCleanup(os.rmdir, 'folder-of-reports')
        self.assertEqual(self.complete('weft', 'report', '-o', 'folder-of-rep'), ['folder-of-reports'])  # and not an operation, as of perf

    @unittest.skipUnless(shutil.which('zsh'), 'zsh is not here')
    def test_zsh_reads_its_completion(self):
        script = self.prefix / 'share/zsh/site-functions/_weft'
        done = run('zsh', '-n', str(script))
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        for option in self.options('perf'):
            self.assertIn(f"'{option}[", script.read_text())

    def unit(self):
        return (self.prefix / 'lib/systemd/system/weft-aggd.service').read_text()

    def test_the_unit_starts_the_daemon_that_is_there(self):
        start = re.search(r'^ExecStart=(.*)$', self.unit(), re.MULTILINE).group(1)
        self.assertTrue(start.startswith(f'/{PREFIX}/bin/weft-aggd '), start)
        known = run(str(self.prefix / 'bin/weft-aggd'), '--help').stdout
        for option in re.findall(r' (--[a-z-]+)', start):
            self.assertIn(f'  {option} ', known)
        credentials = self.top / 'credentials'
        credentials.mkdir()
        (credentials / 'aggd.secret').write_text('a secret of the service\n')
        (credentials / 'aggd.secret').chmod(0o400)  # as systemd gives it
        daemon = subprocess.Popen(['sh', '-c', f'exec {self.top}{start}'], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  env={**CLEAN, 'CREDENTIALS_DIRECTORY': str(credentials), 'AGGD_LISTEN': '127.0.0.1:0', 'AGGD_OPTIONS': '--drain 1'})
        try:
            self.assertIn('aggregating as', daemon.stdout.readline())
        finally:
            daemon.terminate()
            daemon.communicate(timeout=60)
            shutil.rmtree(credentials)
        self.assertEqual(daemon.returncode, 0)

    @unittest.skipUnless(shutil.which('systemd-analyze'), 'systemd-analyze is not here')
    def test_the_unit_is_what_systemd_takes_and_little_exposed(self):
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / 'weft-aggd.service'
            unit.write_text(re.sub(r'^(ExecStart=)\S+|^Documentation=.*\n', lambda found: '' if not found[1] else f'ExecStart={self.prefix}/bin/weft-aggd',
                                   self.unit(), flags=re.MULTILINE))
            done = run('systemd-analyze', 'verify', str(unit))
            self.assertEqual((done.returncode, done.stderr), (0, ''))
            said = run('systemd-analyze', 'security', '--offline=true', str(unit)).stdout
            if exposed := re.search(r'exposure level .*: ([\d.]+)', said):
                self.assertLess(float(exposed.group(1)), 3)

    def test_the_bill_of_materials_is_whole(self):
        bill = json.loads((self.prefix / 'share/doc/weft-nccl/weft.spdx.json').read_text())
        self.assertEqual(bill['spdxVersion'], 'SPDX-2.3')
        ids = {package['SPDXID'] for package in bill['packages']}
        self.assertEqual(len(ids), len(bill['packages']))
        self.assertIn('libstdc++', {package['name'] for package in bill['packages']})
        for relation in bill['relationships']:
            self.assertLessEqual({relation['spdxElementId'], relation['relatedSpdxElement']}, ids | {'SPDXRef-DOCUMENT'})

    def test_the_example_changes_nothing(self):
        example = self.prefix / 'share/doc/weft-nccl/examples/weft.conf'
        shown = json.loads(run(self.weft, 'info', '--config', '--json', WEFT_CONF=str(example)).stdout)
        self.assertEqual((shown['configFile'], shown['unknown']), (str(example), []))
        self.assertFalse(any(row['changed'] for row in shown['config']))


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
