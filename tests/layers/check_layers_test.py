#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Shows that the house check can fail: each rule against a small tree that breaks it, and one that keeps all."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_headers
import check_layers
import floors

HEAD = '// SPDX-License-Identifier: Apache-2.0\n// Copyright The weft authors\n'
HEADER = HEAD + '#pragma once\n\n// A thing. Any thread.\n'


class HouseTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = pathlib.Path(folder.name)
        self.put('include/weft/transport.h', HEADER)
        self.put('src/base/log.h', HEADER)
        self.put('src/core/net.h', HEADER)
        self.put('providers/ofi/info.h', HEADER)
        self.put('plugin/net.h', HEADER)

    def put(self, path, text):
        (self.top / path).parent.mkdir(parents=True, exist_ok=True)
        (self.top / path).write_text(text)

    def complaints(self):
        return check_layers.check_tree(self.top)[0]

    def expect(self, path, text, words, line=None):
        """One file with `text`: exactly one complaint, in it, with these words."""
        self.put(path, text)
        found = self.complaints()
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(f'{path}:{line}:' if line else f'{path}:'), found)
        self.assertIn(words, found[0])

    def test_every_room_of_the_library_says_what_it_is(self):
        self.assertTrue(any('src/core/: has no README.md' in found for found in check_layers.check_rooms(self.top)))
        self.put('src/core/README.md', '# The protocol')
        self.assertFalse(any('src/core/' in found for found in check_layers.check_rooms(self.top)))
        self.put('tools/info/info.h', HEADER)
        self.assertTrue(any('tools/info/: has no README.md' in found for found in check_layers.check_rooms(self.top)))

    def test_folders_of_one_machine_are_refused(self):
        head = HEAD.replace('//', '#')
        self.put('tests/unit/meson.build', head + "found = include_directories('include')  # /usr/local/cuda is not asked for\n")
        self.put('scripts/go', '#!/usr/bin/env bash\n' + head + 'weft "$top/usr/lib"\n')
        self.assertEqual(self.complaints(), [])
        self.expect('tests/unit/meson.build', head + "cuda = include_directories('/usr/local/cuda/include')\n",
                    'names /usr/local/cuda/include, which another machine may not have', line=3)
        (self.top / 'tests/unit/meson.build').unlink()
        self.expect('scripts/go', '#!/usr/bin/env bash\n' + head + 'exec /home/somebody/weft\n', 'names /home/somebody/weft', line=4)

    def test_units_of_a_room_go_in_no_circle(self):
        self.put('src/base/high.h', HEADER)
        self.put('src/base/high.cc', HEAD + '#include "src/base/high.h"\n#include "src/base/low.h"\n')
        self.put('src/base/low.h', HEADER)
        self.assertEqual(self.complaints(), [])
        self.put('src/base/low.h', HEADER + '#include "src/base/high.h"\n')
        self.assertEqual(self.complaints(), ['src/base/: a circle of 2 units that include each other: high, low'])

    def test_a_room_that_has_circles_still_may_have_them(self):
        self.put('providers/tcp/a.h', HEADER + '#include "providers/tcp/b.h"\n')
        self.put('providers/tcp/b.cc', HEAD + '#include "providers/tcp/a.h"\n')
        self.put('providers/tcp/b.h', HEADER)
        self.assertEqual(self.complaints(), [])

    def test_a_unit_of_the_protocol_includes_nothing_of_a_floor_above(self):
        stories = {'values': 'low', 'path': 'high other'}
        texts = {'src/core/low.h': HEADER, 'src/core/high.h': HEADER + '#include "src/core/low.h"\n#include "src/core/other.h"\n',
                 'src/core/other.h': HEADER, 'src/base/free.h': HEADER}
        self.assertEqual(list(floors.check(texts, stories)), [])
        texts['src/core/low.cc'] = HEAD + '#include "src/core/high.h"\n'
        self.assertEqual(list(floors.check(texts, stories)),
                         ['src/core/low: is on the floor "values" and includes high of "path" above it'])
        del texts['src/core/low.cc']
        texts['src/core/stray.h'] = HEADER
        self.assertEqual(list(floors.check(texts, stories)), ['src/core/stray: is on no floor of tests/layers/floors.py'])

    def test_a_good_tree_is_quiet(self):
        self.put('src/core/a.cc', HEAD + '''#include "src/core/net.h"

#include <vector>
#include <sys/mman.h>

#include "src/base/log.h"
#include "weft/transport.h"
// goto, friend, new X and getenv("x") in a comment
const char* text = "goto new X; delete p; getenv(";
const char* raw = R"(throw friend new X " )";
char quote = '"';
int thousand = 1'000;  // '
thread_local char mark;
thread_local Engine* engine = nullptr;
struct A { A(const A&) = delete; void* operator new(size_t) = delete; };
''')
        self.put('tools/a.py', '#!/usr/bin/env python3\n# SPDX-License-Identifier: Apache-2.0\n'
                 '# Copyright The weft authors\n')
        self.assertEqual(self.complaints(), [])

    def test_sentences_of_comments_begin_with_a_noun(self):
        self.put('src/base/ok.cc', HEAD + '''// A lane is up. It says
// what it has: one of them.
//
// * One item of a list is a line of its own, which is no sentence: but
int one;  // what is left
const char* text = "// What is in a string";
'''.replace('* One', '* The one'))
        self.put('src/core/later.cc', HEAD + '// Who cares for this room does so later.\n')
        self.expect('src/base/a.cc', HEAD + '// A lane is up. It stays\n// so. Whoever reads this knows.\n', 'begins with "Whoever"', 4)

    def test_each_beginning_that_is_no_noun_is_seen(self):
        for words in ('Who', 'What', 'One', 'Such', 'Whether', 'Since when'):
            self.expect('tools/a.cc', HEAD + f'int a;  // {words} is this?\n', f'begins with "{words}"', 3)

    def test_fabric_headers_stay_in_their_provider(self):
        self.put('providers/ofi/ok.cc', HEAD + '#include <rdma/fabric.h>\n')
        self.expect('src/core/a.cc', HEAD + '#include <rdma/fabric.h>\n', 'does not know that library', 3)

    def test_verbs_are_not_for_libfabric(self):
        self.expect('providers/ofi/a.cc', HEAD + '#include <infiniband/verbs.h>\n', 'does not know that library')

    def test_cuda_is_for_memory_only(self):
        self.put('src/mem/ok.cc', HEAD + '#include <cuda.h>\n')
        self.expect('src/core/a.cc', HEAD + '#include <cuda.h>\n', 'does not know that library')

    def test_the_core_knows_no_provider(self):
        self.expect('src/core/a.cc', HEAD + '\n#include "providers/ofi/info.h"\n', 'src/core/ may include only', 4)

    def test_providers_do_not_know_each_other_or_the_core(self):
        self.put('providers/loop/a.cc', HEAD + '#include "providers/ofi/info.h"\n#include "src/core/net.h"\n')
        self.assertEqual(len(self.complaints()), 2)

    def test_base_knows_nobody(self):
        self.expect('src/base/a.cc', HEAD + '#include "src/core/net.h"\n', 'src/base/ may include only')

    def test_tools_never_include_the_plugin(self):
        self.expect('tools/a.cc', HEAD + '#include "plugin/net.h"\n', 'tools/ may include only')

    def test_the_seam_needs_nothing_but_the_language(self):
        self.expect('include/weft/a.h', HEADER + '#include <sys/socket.h>\n', 'only standard headers')

    def test_streams_stay_outside_the_plugin(self):
        self.put('tools/ok.cc', HEAD + '#include <iostream>\n')
        self.expect('src/core/a.cc', HEAD + '#include <iostream>\n', 'no streams')

    def test_helper_libraries_stay_in_the_tools(self):
        self.put('tools/ok.cc', HEAD + '#include <fmt/format.h>\n')
        self.expect('plugin/a.cc', HEAD + '#include <fmt/format.h>\n', 'does not know that library')

    def test_own_headers_are_named_from_the_top(self):
        self.expect('src/core/a.cc', HEAD + '#include "net.h"\n', 'paths begin at the top')

    def test_a_file_outside_every_room_is_reported(self):
        self.expect('src/other/a.cc', HEAD, 'in no room')

    def test_forbidden_words(self):
        lines = ['goto end;', 'friend class B;', 'auto* p = new int;', 'auto* p = new (place) int(1);', 'delete p;',
                 'delete[] p;', 'void* p = malloc(1);', 'getenv("A");', 'std::getenv("A");', 'setenv("A", "b", 1);',
                 'exit(1);', 'std::atexit(f);', 'printf("x");', 'fputs("x", stdout);', 'throw 1;',
                 'thread_local std::string s;', 'std::random_device d;']
        for line in lines:
            with self.subTest(line):
                self.expect('src/core/a.cc', HEAD + 'int i;\n' + line + '\n', 'not used in this house', 4)

    def test_destructors_wait_for_nothing(self):
        for body in ('clock_.sleep(pause);', 'if (t_.joinable()) t_.join();', 'comm_->close();', 'Patience p(c, t);',
                     'for (;;) { awaitAll(); }'):
            with self.subTest(body):
                self.expect('src/core/a.cc', HEAD + 'int i;\nA::~A() {\n  ' + body + '\n}\n', 'destructor that waits', 4)
        self.expect('src/core/a.cc', HEAD + 'struct A {\n  ~A() { thread_.join(); }\n};\n', 'destructor that waits', 4)
        self.put('src/core/a.cc', HEAD + 'A::~A() { engine_.leave(); }\nvoid A::close() {\n  clock_.sleep(pause);\n}\n')
        self.put('providers/ofi/a.cc', HEAD + 'A::~A() {\n  thread_.join();\n}\n')
        self.assertEqual(self.complaints(), [])

    def test_tests_may_change_their_environment_but_not_read_it_past_the_table(self):
        self.put('tests/ok.cc', HEAD + 'void f() { setenv("A", "b", 1); }\n')
        self.assertEqual(self.complaints(), [])
        self.expect('tests/a.cc', HEAD + 'void f() { getenv("A"); }\n', 'getenv')

    def test_conditional_compilation_has_homes(self):
        self.put('providers/ofi/compat.h', HEADER + '#ifdef X\n#endif\n')
        for directive in ('#if X', '#ifdef X', '#ifndef X', '# if X'):
            with self.subTest(directive):
                self.expect('src/core/a.cc', HEAD + directive + '\n#endif\n', 'conditional compilation', 3)

    def test_long_files(self):
        self.expect('src/core/a.cc', HEAD + 'int i;\n' * 799, 'at most 800')

    def test_long_headers(self):
        self.expect('src/core/a.h', HEADER + 'int f();\n' * 400, 'at most 400')

    def test_long_functions(self):
        body = 'namespace weft {\nint X::f(int a,\n      int b) const {\n' + '  a++;\n' * 58 + '}\n}\n'
        self.expect('src/core/a.cc', HEAD + body, 'a function of 61 lines', 4)

    def test_long_classes_and_tables_are_not_functions(self):
        self.put('src/core/a.cc', HEAD + 'class A : public B<int (*)(int)> {\n' + ' int f();\n' * 70 + '};\n'
                 'int table[] = {\n' + '1,\n' * 70 + '};\nnamespace {\n' + 'int i;\n' * 70 + '}\n')
        self.assertEqual(self.complaints(), [])

    def test_long_lambdas_count_for_their_function(self):
        body = 'void f() {\n  g([&](int x) {\n' + '    x++;\n' * 60 + '  });\n}\n'
        self.expect('src/core/a.cc', HEAD + body, 'a function of 64 lines', 3)

    def test_licences(self):
        self.expect('src/core/a.cc', '// Copyright The weft authors\n', 'must begin with')
        (self.top / 'src/core/a.cc').unlink()
        self.expect('scripts/a', '#!/bin/bash\necho\n', 'must begin with', 2)

    def test_headers_are_guarded_and_explained(self):
        self.expect('src/core/a.h', HEAD + '// Words. Any thread.\nint f();\n', 'pragma once')
        self.expect('src/core/a.h', HEAD + '#pragma once\nint f();\n', 'what it is for')

    def test_names_are_snake_case(self):
        self.expect('src/core/sendComm.cc', HEAD, 'snake_case')

    def test_an_empty_tree_fails(self):
        with tempfile.TemporaryDirectory() as empty:
            self.assertEqual(check_layers.main([empty]), 1)

    def test_a_header_that_leans_on_others_is_found(self):
        compiler = ['--', 'g++']
        self.assertEqual(check_headers.main([str(self.top), *compiler]), 0)
        self.put('src/base/lean.h', HEADER + 'inline std::string name();\n')
        self.assertEqual(check_headers.main([str(self.top), *compiler]), 1)
        self.assertEqual(check_headers.main([str(self.top), '--skip', 'src/base', *compiler]), 0)

    def test_the_build_shows_only_a_header_that_comes_first(self):
        self.put('src/base/lean.h', HEADER + 'inline std::string name();\n')
        self.put('src/base/lean.cc', HEAD + '#include <string>\n#include "src/base/lean.h"\n')
        self.assertEqual(check_headers.main([str(self.top), '--', 'g++']), 1)
        self.put('src/base/lean.cc', HEAD + '#include "src/base/lean.h"\n')
        self.assertEqual(check_headers.main([str(self.top), '--', 'g++']), 0)


if __name__ == '__main__':
    unittest.main()
