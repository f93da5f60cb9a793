// SPDX-License-Identifier: Apache-2.0
// Copyright The weft authors
//
// What an EFA does not have, or nobody needs here. It must be there all the same: programs that use the EFA
// provider load libraries that name these.
#include <cerrno>

#include <infiniband/sa.h>
#include <infiniband/verbs.h>

extern "C" {

const char* ibv_wc_status_str(ibv_wc_status status) {
  return status == IBV_WC_SUCCESS ? "success" : "error";
}

ibv_cq* ibv_create_cq(ibv_context*, int, void*, ibv_comp_channel*, int) {
  errno = EOPNOTSUPP;
  return nullptr;
}
ibv_srq* ibv_create_srq(ibv_pd*, ibv_srq_init_attr*) {
  errno = EOPNOTSUPP;
  return nullptr;
}
int ibv_destroy_srq(ibv_srq*) {
  return EOPNOTSUPP;
}
int ibv_attach_mcast(ibv_qp*, const ibv_gid*, uint16_t) {
  return EOPNOTSUPP;
}
int ibv_detach_mcast(ibv_qp*, const ibv_gid*, uint16_t) {
  return EOPNOTSUPP;
}
int ibv_get_pkey_index(ibv_context*, uint8_t, __be16) {
  return -1;
}
int ibv_query_ece(ibv_qp*, ibv_ece*) {
  return EOPNOTSUPP;
}
int ibv_set_ece(ibv_qp*, ibv_ece*) {
  return EOPNOTSUPP;
}
int ibv_read_sysfs_file(const char*, const char*, char*, size_t) {
  return -1;
}
void ibv_copy_ah_attr_from_kern(ibv_ah_attr*, void*) {}
void ibv_copy_qp_attr_from_kern(ibv_qp_attr*, void*) {}
void ibv_copy_path_rec_from_kern(ibv_sa_path_rec*, void*) {}
int ibv_get_async_event(ibv_context*, ibv_async_event*) {
  errno = EOPNOTSUPP;
  return -1;
}
void ibv_ack_async_event(ibv_async_event*) {}
}
