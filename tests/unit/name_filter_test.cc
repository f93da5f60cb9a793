// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "src/base/name_filter.h"

#include "tests/support/catch.h"

using weft::NameFilter;

TEST_CASE("an empty filter takes everything and names nothing") {
  const NameFilter filter("");
  CHECK(filter.empty());
  CHECK(filter.accepts("eth0"));
  CHECK_FALSE(filter.names("eth0"));
}

TEST_CASE("a filter is a list of prefixes") {
  const NameFilter filter("eth,ib0");
  CHECK(filter.accepts("eth0"));
  CHECK(filter.accepts("eth12"));
  CHECK(filter.accepts("ib0"));
  CHECK_FALSE(filter.accepts("ib1"));
  CHECK_FALSE(filter.accepts("lo"));
}

TEST_CASE("a caret excludes") {
  const NameFilter filter("^docker,lo");
  CHECK(filter.excludes());
  CHECK_FALSE(filter.accepts("docker0"));
  CHECK_FALSE(filter.accepts("lo"));
  CHECK(filter.accepts("eth0"));
}

TEST_CASE("an equals sign wants exact names, also when excluding") {
  CHECK_FALSE(NameFilter("=eth1").accepts("eth10"));
  CHECK(NameFilter("=eth1").accepts("eth1"));
  CHECK(NameFilter("^=eth1").accepts("eth10"));
  CHECK_FALSE(NameFilter("^=eth1").accepts("eth1"));
}

TEST_CASE("a port after the name must match") {
  const NameFilter filter("=mlx5_0:1,mlx5_1:2,mlx5_2");
  CHECK(filter.accepts("mlx5_0", 1));
  CHECK_FALSE(filter.accepts("mlx5_0", 2));
  CHECK(filter.accepts("mlx5_1", 2));
  CHECK(filter.accepts("mlx5_2", 1));
  CHECK(filter.accepts("mlx5_2", 2));
}

TEST_CASE("what NCCL lets follow the port is read over") {
  const NameFilter filter("=mlx5_0:1:0,mlx5_1:2:1:0,mlx5_2:,mlx5_3::1");
  CHECK(filter.accepts("mlx5_0", 1));
  CHECK_FALSE(filter.accepts("mlx5_0", 2));
  CHECK(filter.accepts("mlx5_1", 2));
  CHECK_FALSE(filter.accepts("mlx5_1", 1));
  CHECK(filter.accepts("mlx5_2", 2));
  CHECK(filter.accepts("mlx5_3", 2));
  CHECK_FALSE(NameFilter("^mlx5_0:1:0").accepts("mlx5_0", 1));
}

TEST_CASE("odd filters do not surprise") {
  CHECK(NameFilter("^").accepts("eth0"));
  CHECK(NameFilter(",,").accepts("eth0"));
  CHECK(NameFilter("eth0,").accepts("eth0"));
  CHECK_FALSE(NameFilter("eth0:x").accepts("eth0"));
  CHECK_FALSE(NameFilter("eth0:-1").accepts("eth0"));
  CHECK(NameFilter("eth0:x").accepts("eth0:x"));
}

TEST_CASE("a colon may be part of a name") {
  const NameFilter filter("eth0:1", NameFilter::Colon::plain);
  CHECK(filter.accepts("eth0:1"));
  CHECK_FALSE(filter.accepts("eth0"));
  CHECK_FALSE(filter.accepts("eth0:2"));
}
