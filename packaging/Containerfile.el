# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
#
# weft in an image of the Enterprise Linux family with glibc 2.35 or later, which is version 10 and later; for version 9 build
# the package there. The package is what scripts/release made:
#
#   scripts/release --only rpm
#   buildah build --build-arg BASE=quay.io/almalinuxorg/almalinux:10 -f packaging/Containerfile.el build-packages
#
# The last step fails the build when weft cannot work in the image.
ARG BASE=quay.io/almalinuxorg/almalinux:10
FROM ${BASE}
COPY *.rpm /tmp/weft/
RUN dnf install -y libfabric libibverbs /tmp/weft/weft-nccl-*.rpm && dnf clean all && rm -rf /tmp/weft
ENV NCCL_NET_PLUGIN=weft
RUN weft info --image
