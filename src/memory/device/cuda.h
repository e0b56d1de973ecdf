/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda.h -- the few names of the CUDA driver API that are used.
 *
 * The driver is libcuda.so.1, found by the run-time loader and never linked, so
 * that one binary runs with and without it; its own headers are not needed to
 * build. Functions are looked up by the names that the driver exports: those
 * whose interface was revised end in _v2. A driver that lacks one of YB_CUDA_MAP is too old.
 *
 * Numbers are those of the driver's binary interface, which never change.
 */
#ifndef YB_MEMORY_DEVICE_CUDA_H
#define YB_MEMORY_DEVICE_CUDA_H

#include <stddef.h>
#include <stdint.h>

#define YB_CUDA_LIBRARY "libcuda.so.1"

typedef int yb_cuda_result;
typedef int yb_cuda_device;
typedef uint64_t yb_cuda_pointer;
typedef struct yb_cuda_context *yb_cuda_context;
typedef struct yb_cuda_stream *yb_cuda_stream;
typedef struct yb_cuda_event *yb_cuda_event;

#define YB_CUDA_SUCCESS         0
#define YB_CUDA_INVALID_VALUE   1
#define YB_CUDA_OUT_OF_MEMORY   2
#define YB_CUDA_NO_DEVICE       100
#define YB_CUDA_INVALID_DEVICE  101
#define YB_CUDA_INVALID_CONTEXT 201
#define YB_CUDA_PEERS_ALREADY   704 /* Access was enabled before. */
#define YB_CUDA_ALREADY_MAPPED  712 /* Host memory that is registered already. */
#define YB_CUDA_NOT_READY       600
#define YB_CUDA_LAUNCH_FAILED   719

#define YB_CUDA_STREAM_NON_BLOCKING  1u /* Does not wait for the caller's default stream. */
#define YB_CUDA_EVENT_DISABLE_TIMING 2u
#define YB_CUDA_HOST_PORTABLE        1u /* Page-locked for all contexts. */
#define YB_CUDA_POINTER_MEMORY_TYPE  2
#define YB_CUDA_POINTER_IS_MANAGED   8
#define YB_CUDA_POINTER_DEVICE       9
#define YB_CUDA_MEMORY_TYPE_HOST     1u
#define YB_CUDA_MEMORY_TYPE_DEVICE   2u

/* clang-format off */
/* field, exported name, parameters */
#define YB_CUDA_MAP(X)                                                                            \
    X(init, "cuInit", (unsigned flags))                                                           \
    X(driver_version, "cuDriverGetVersion", (int *version))                                       \
    X(error_name, "cuGetErrorName", (yb_cuda_result error, const char **name))                    \
    X(device_count, "cuDeviceGetCount", (int *count))                                             \
    X(device_get, "cuDeviceGet", (yb_cuda_device *device, int ordinal))                           \
    X(context_retain, "cuDevicePrimaryCtxRetain",                                                 \
      (yb_cuda_context *context, yb_cuda_device device))                                          \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", (yb_cuda_device device))                   \
    X(context_set, "cuCtxSetCurrent", (yb_cuda_context context))                                  \
    X(context_push, "cuCtxPushCurrent_v2", (yb_cuda_context context))                             \
    X(context_pop, "cuCtxPopCurrent_v2", (yb_cuda_context *context))                              \
    X(pointer_attributes, "cuPointerGetAttributes",                                               \
      (unsigned count, int *attributes, void **data, yb_cuda_pointer pointer))                    \
    X(mem_alloc, "cuMemAlloc_v2", (yb_cuda_pointer *pointer, size_t bytes))                       \
    X(mem_free, "cuMemFree_v2", (yb_cuda_pointer pointer))                                        \
    X(host_register, "cuMemHostRegister_v2", (void *base, size_t bytes, unsigned flags))          \
    X(host_unregister, "cuMemHostUnregister", (void *base))                                       \
    X(stream_create, "cuStreamCreate", (yb_cuda_stream *stream, unsigned flags))                  \
    X(stream_destroy, "cuStreamDestroy_v2", (yb_cuda_stream stream))                              \
    X(stream_wait, "cuStreamSynchronize", (yb_cuda_stream stream))                                \
    X(event_create, "cuEventCreate", (yb_cuda_event *event, unsigned flags))                      \
    X(event_destroy, "cuEventDestroy_v2", (yb_cuda_event event))                                  \
    X(event_record, "cuEventRecord", (yb_cuda_event event, yb_cuda_stream stream))                \
    X(event_query, "cuEventQuery", (yb_cuda_event event))                                         \
    X(copy_to_device, "cuMemcpyHtoDAsync_v2",                                                     \
      (yb_cuda_pointer to, const void *from, size_t bytes, yb_cuda_stream stream))                \
    X(copy_to_host, "cuMemcpyDtoHAsync_v2",                                                       \
      (void *to, yb_cuda_pointer from, size_t bytes, yb_cuda_stream stream))                      \
    X(copy_inside, "cuMemcpyDtoDAsync_v2",                                                        \
      (yb_cuda_pointer to, yb_cuda_pointer from, size_t bytes, yb_cuda_stream stream))

/* What a driver may lack: then copies between devices go through the host. */
#define YB_CUDA_OPTIONAL_MAP(X)                                                                   \
    X(can_access_peer, "cuDeviceCanAccessPeer",                                                   \
      (int *can, yb_cuda_device device, yb_cuda_device peer))                                     \
    X(enable_peer, "cuCtxEnablePeerAccess", (yb_cuda_context peer, unsigned flags))               \
    X(copy_across, "cuMemcpyPeerAsync",                                                           \
      (yb_cuda_pointer to, yb_cuda_context to_context, yb_cuda_pointer from,                      \
       yb_cuda_context from_context, size_t bytes, yb_cuda_stream stream))
/* clang-format on */

#endif /* YB_MEMORY_DEVICE_CUDA_H */
