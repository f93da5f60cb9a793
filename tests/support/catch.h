// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#pragma once

// Catch2 v2 (Debian 12) and v3 (Debian 13) through one include. `Approx`, matchers and benchmarks are not
// used.
#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#else
#include <catch2/catch.hpp>
#endif
