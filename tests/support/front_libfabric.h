// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

#include <dlfcn.h>

// For libraries that stand in front of the installed libfabric and do one thing differently. The calls that
// they hand on unchanged are in front_libfabric.cc. Any thread.
namespace weft::test {

template <class Function>
Function* real(const char* name) {
  static void* const library = ::dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

// Gives an object a copy of its table of calls in which `member` is ours; `former` is what it was. An object
// that has the copy keeps it.
template <class Ops, class Call>
void intercept(Ops** table, Ops* copy, Call Ops::*member, Call ours, Call* former) {
  if (*table == copy) return;
  *former = (*table)->*member;
  *copy = **table;
  copy->*member = ours;
  *table = copy;
}

}  // namespace weft::test
