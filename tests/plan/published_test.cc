// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include <cmath>

#include "tests/plan/examples.h"
#include "tests/support/catch.h"

// Results that others published, as the model has them. Fits see points below 128 GPUs alone; no number of an
// example is chosen for one point. docs/scale.md says where the model misses and where sources contradict.
namespace weft::plan {

namespace {

constexpr double kFitBelow = 128;

Comparison comparisonOf(const Scenario& scenario) {
  auto made = fitted(scenario, kFitBelow, Draws{});
  if (!made) FAIL(made.error().message());
  return compare(*made, kFitBelow, Draws{});
}

double efficiencyOf(const std::string& job, const std::string& cluster, double gpus) {
  return predict(example(job, cluster), gpus, Draws{}).efficiency;
}

}  // namespace

// Source: Anthony, Xu, Subramoni and Panda, Scaling Single-Image Super-Resolution Training on Modern HPC
// Clusters, 2021: images a second of EDSR on 1 to 512 V100 of Lassen.
TEST_CASE("EDSR on up to 512 GPUs is within 5 % rms and 10 % at each point, fitted below 128") {
  for (const char* const job : {"edsr-nccl", "edsr-mpi", "edsr-mpi-opt"}) {
    INFO(job);
    const Comparison comparison = comparisonOf(example(job, "lassen"));
    CHECK(comparison.points.size() == 10);
    CHECK(comparison.rms <= 0.05);
    CHECK(comparison.worst <= 0.10);
    // A miss that is known: of MPI alone, whose points at 16 and 32 GPUs are irregular, the held-out points
    // are off by 6.2 % rms.
    CHECK(comparison.rmsHeldOut <= (std::string(job) == "edsr-mpi" ? 0.065 : 0.05));
  }
}

// Source: the same; MPI-Opt is 1.26 times as fast as MPI and 1.14 times as fast as NCCL on 512 GPUs.
TEST_CASE("the order of EDSR's three libraries on 512 GPUs is that of the paper") {
  const auto at512 = [](const char* job) {
    return comparisonOf(example(job, "lassen")).points.back().predicted;
  };
  const double opt = at512("edsr-mpi-opt");
  CHECK(opt / at512("edsr-mpi") == Approx(1.26).epsilon(0.07));
  CHECK(opt / at512("edsr-nccl") == Approx(1.14).epsilon(0.05));
}

// Source: AWS blog on BERT and Mask R-CNN, 2019: 87 % scaling on 256 GPUs. They are V100 of p3dn.24xlarge; on
// A100 the same job scales better, so a result of 87 % there needs a shorter step than is assumed here.
TEST_CASE("BERT-Large on 256 GPUs of p3dn scales to 87 % within 2 points") {
  CHECK(std::abs(efficiencyOf("bert-large", "p3dn", 256) - 0.87) <= 0.02);
  CHECK(efficiencyOf("bert-large", "p4d", 256) > 0.89);
}

// Source: Azure and DeepSpeed, 2022: above 157 TFLOPs a GPU for 175 billion parameters on 512 A100 with 8 x
// 200 Gb/s. The speed of the kernels is an input; what is tested is how little the communication takes from
// it.
TEST_CASE("175 billion parameters with ZeRO-3 on 512 A100 reach 157 TFLOPs a GPU within 5 %") {
  const Prediction made = predict(example("zero3-175b", "ndm-a100-v4"), 512, Draws{});
  CHECK(made.tflops >= 157);
  CHECK(made.tflops <= 157 * 1.05);
  // 3 x 2 bytes of each parameter over 180 GB/s are 5.8 s, and a gather of each layer is latency besides.
  CHECK(made.step.communication.us() > 5.8e6);
  CHECK(made.step.communication.us() < 7e6);
}

// Source: Horovod docs/benchmarks.rst for ResNet-101 (90 %), and the publications on EFA and InfiniBand that
// have 90 % and more for the family.
TEST_CASE("ResNet-50, 101 and 152 on 512 GPUs scale above 90 %") {
  for (const char* const job : {"resnet-50", "resnet-101", "resnet-152"}) {
    INFO(job);
    CHECK(efficiencyOf(job, "p3dn", 512) > 0.90);
    CHECK(efficiencyOf(job, "p4d", 512) > 0.90);
  }
  CHECK(efficiencyOf("horovod-resnet-101", "pascal-25g", 512) == Approx(0.90).margin(0.02));
}

// Source: Horovod docs/benchmarks.rst: 68 % on 512 P100 with 25 Gb/s RoCE.
TEST_CASE("VGG-16 on 512 GPUs scales to 68 % within 5 points") {
  CHECK(std::abs(efficiencyOf("horovod-vgg-16", "pascal-25g", 512) - 0.68) <= 0.05);
}

// Source: the same table has 90 % for Inception-V3, as for ResNet-101 with twice the bytes. So bytes are not
// what they lose: skew is, and the window hides all communication of both.
TEST_CASE("Inception-V3 on 512 GPUs scales to 90 % within 2 points, and skew is what limits it") {
  CHECK(efficiencyOf("horovod-inception-v3", "pascal-25g", 512) == Approx(0.90).margin(0.02));
  CHECK(predict(example("horovod-inception-v3", "pascal-25g"), 512, Draws{}).limit == Limit::skew);
}

// Source: AWS, 2019: above 1,000 images a second on 192 V100 of p3dn.24xlarge.
TEST_CASE("Mask R-CNN on 192 GPUs is above 1,000 images a second, and skew is what limits it") {
  const Prediction made = predict(example("mask-rcnn", "p3dn"), 192, Draws{});
  CHECK(made.throughput > 1000);
  CHECK(made.throughput < 6.5 * 192);
  CHECK(made.limit == Limit::skew);
}

// Source: crazyguitar/aws-gpu-communication-benchmark: NCCL's all-gather on 2 to 32 nodes of p5.48xlarge. Two
// protocols, each a line of latency and bandwidth; where NCCL changes from one to the other follows from its
// own constants.
TEST_CASE("NCCL's all-gather on p5 is within 10 % rms, also where it was held out") {
  const Comparison comparison = comparisonOf(example("p5-all-gather", "p5"));
  CHECK(comparison.points.size() == 35);
  CHECK(comparison.rmsFitted <= 0.06);
  CHECK(comparison.rmsHeldOut <= 0.10);
  // The numbers of the example are those of the fit.
  CHECK(compare(example("p5-all-gather", "p5"), 0, Draws{}).rms <= 0.07);
}

// Source: the same benchmark. A miss that is known: NCCL changes between algorithms whose choice is not
// modelled.
TEST_CASE("NCCL's all-reduce on p5 is off by less than 20 % rms where it was held out") {
  const Comparison comparison = comparisonOf(example("p5-all-reduce", "p5"));
  CHECK(comparison.points.size() == 45);
  CHECK(comparison.rmsFitted <= 0.12);
  CHECK(comparison.rmsHeldOut <= 0.20);
  CHECK(comparison.worst == Approx(0.457).margin(0.005));  // docs/scale.md says so
}

}  // namespace weft::plan
