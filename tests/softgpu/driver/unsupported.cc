// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
#include "tests/softgpu/without.h"

// Driver functions that callers look for and that the software GPU does not have.

SOFTGPU_WITHOUT(cuMulticastAddDevice)
SOFTGPU_WITHOUT(cuMulticastBindAddr)
SOFTGPU_WITHOUT(cuMulticastBindMem)
SOFTGPU_WITHOUT(cuMulticastCreate)
SOFTGPU_WITHOUT(cuMulticastGetGranularity)
SOFTGPU_WITHOUT(cuMulticastUnbind)
SOFTGPU_WITHOUT(cuModuleLoadData)
SOFTGPU_WITHOUT(cuModuleLoadDataEx)
SOFTGPU_WITHOUT(cuModuleGetFunction)
SOFTGPU_WITHOUT(cuModuleUnload)
SOFTGPU_WITHOUT(cuMemcpy2D_v2)
SOFTGPU_WITHOUT(cuMemcpy3D_v2)
SOFTGPU_WITHOUT(cuMemcpyPeer)
SOFTGPU_WITHOUT(cuMemcpyPeerAsync)
SOFTGPU_WITHOUT(cuMemPrefetchAsync)
SOFTGPU_WITHOUT(cuMemAdvise)
SOFTGPU_WITHOUT(cuGraphAddKernelNode_v2)
SOFTGPU_WITHOUT(cuGraphAddMemcpyNode)
SOFTGPU_WITHOUT(cuGraphCreate)
SOFTGPU_WITHOUT(cuGraphExecUpdate_v2)
SOFTGPU_WITHOUT(cuIpcGetEventHandle)
SOFTGPU_WITHOUT(cuIpcOpenEventHandle)
