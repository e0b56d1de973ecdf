/* SPDX-License-Identifier: Apache-2.0
 *
 * known.h -- the known system's commands, so that scripts and charts that start them start ours.
 *
 *     mooncake_master                  our directory, its HTTP port, perhaps a metadata server
 *     mooncake_client                  a node, its HTTP port, and a socket that says where both are
 *     mooncake_http_metadata_server    values by key over HTTP
 *
 * A flag is written `-name=value`, `--name=value`, `--name value`, and a switch also `--name` and
 * `--noname`. Each of theirs has a row below: it is mapped, or accepted and named once as being
 * without effect. Any other refuses to start, with the nearest name. YUEBING_ names of the
 * environment hold beneath the flags.
 *
 * Exit      As of `yuebing`: 0, 1, or 2 for what is refused.
 * Threads   One.
 */
#ifndef YB_CLI_KNOWN_H
#define YB_CLI_KNOWN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum yb_known_command {
    YB_KNOWN_master,
    YB_KNOWN_client,
    YB_KNOWN_metadata,
    YB_KNOWN_COMMANDS,
};

enum yb_known_type {
    YB_KNOWN_SWITCH,
    YB_KNOWN_NUMBER, /* Whole, or with a fraction. */
    YB_KNOWN_TEXT,
};

/* What the first two have from their libraries of flags and logs: name, type, default, effect. */
/* clang-format off */
#define YB_KNOWN_COMMON_MAP(X, command)                                                            \
    X(command, logtostderr, SWITCH, "false", "")                                                   \
    X(command, alsologtostderr, SWITCH, "false", "")                                               \
    X(command, colorlogtostderr, SWITCH, "false", "")                                              \
    X(command, log_dir, TEXT, "", "")                                                              \
    X(command, minloglevel, NUMBER, "0", "")                                                       \
    X(command, stderrthreshold, NUMBER, "2", "")                                                   \
    X(command, max_log_size, NUMBER, "1800", "")                                                   \
    X(command, v, NUMBER, "0", "")                                                                 \
    X(command, vmodule, TEXT, "", "")                                                              \
    X(command, log_prefix, SWITCH, "true", "")                                                     \
    X(command, log_link, TEXT, "", "")                                                             \
    X(command, log_backtrace_at, TEXT, "", "")                                                     \
    X(command, logbuflevel, NUMBER, "0", "")                                                       \
    X(command, logbufsecs, NUMBER, "30", "")                                                       \
    X(command, logfile_mode, NUMBER, "436", "")                                                    \
    X(command, logmailer, TEXT, "/bin/mail", "")                                                   \
    X(command, logemaillevel, NUMBER, "999", "")                                                   \
    X(command, alsologtoemail, TEXT, "", "")                                                       \
    X(command, drop_log_memory, SWITCH, "true", "")                                                \
    X(command, stop_logging_if_full_disk, SWITCH, "false", "")                                     \
    X(command, symbolize_stacktrace, SWITCH, "true", "")                                           \
    X(command, mmap_arena_pool_size, NUMBER, "8589934592", "")                                     \
    X(command, use_mmap_arena_allocator, SWITCH, "false", "")                                      \
    X(command, flagfile, TEXT, "",                                                                 \
      "file of flags, one a line, which count as if they stood here")                              \
    X(command, fromenv, TEXT, "", "")                                                              \
    X(command, tryfromenv, TEXT, "", "")                                                           \
    X(command, undefok, TEXT, "", "")                                                              \
    X(command, tab_completion_columns, NUMBER, "80", "")                                           \
    X(command, tab_completion_word, TEXT, "", "")

/* clang-format on */

/* Columns: command, name, type, default as they have it, what it does here ("": nothing). */
/* clang-format off */
#define YB_KNOWN_FLAG_MAP(X)                                                                       \
    X(master, config_path, TEXT, "",                                                               \
      "file of `name: value` lines, or JSON; the command line counts before it")                   \
    X(master, port, NUMBER, "50051", "port of the directory")                                      \
    X(master, rpc_port, NUMBER, "0", "the same; counts before `port`")                             \
    X(master, rpc_address, TEXT, "0.0.0.0", "address that the directory listens on")               \
    X(master, rpc_interface, TEXT, "", "")                                                         \
    X(master, rpc_thread_num, NUMBER, "0", "")                                                     \
    X(master, max_threads, NUMBER, "16", "")                                                       \
    X(master, rpc_conn_timeout_seconds, NUMBER, "0", "")                                           \
    X(master, rpc_enable_tcp_no_delay, SWITCH, "true", "")                                         \
    X(master, enable_metric_reporting, SWITCH, "true", "")                                         \
    X(master, metrics_port, NUMBER, "9003", "port of the HTTP paths; 0: none")                     \
    X(master, metrics_host, TEXT, "0.0.0.0", "address of the HTTP paths")                          \
    X(master, enable_http_metadata_server, SWITCH, "false", "opens a metadata server")             \
    X(master, http_metadata_server_port, NUMBER, "8080", "its port")                               \
    X(master, http_metadata_server_host, TEXT, "0.0.0.0", "its address")                           \
    X(master, enable_metadata_cleanup_on_timeout, SWITCH, "false", "")                             \
    X(master, default_kv_lease_ttl, NUMBER, "10000", "")                                           \
    X(master, default_kv_soft_pin_ttl, NUMBER, "1800000", "")                                      \
    X(master, max_kv_soft_pin_ttl, NUMBER, "86400000", "")                                         \
    X(master, allow_evict_soft_pinned_objects, SWITCH, "true", "")                                 \
    X(master, eviction_ratio, NUMBER, "0.05", "")                                                  \
    X(master, eviction_high_watermark_ratio, NUMBER, "0.90", "")                                   \
    X(master, nof_eviction_ratio, NUMBER, "0.05", "")                                              \
    X(master, nof_eviction_high_watermark_ratio, NUMBER, "0.90", "")                               \
    X(master, put_start_discard_timeout_sec, NUMBER, "30", "")                                     \
    X(master, put_start_release_timeout_sec, NUMBER, "600", "")                                    \
    X(master, memory_allocator, TEXT, "offset", "")                                                \
    X(master, allocation_strategy, TEXT, "random", "")                                             \
    X(master, enable_cxl, SWITCH, "false", "")                                                     \
    X(master, cxl_path, TEXT, "/dev/dax0.0", "")                                                   \
    X(master, cxl_size, NUMBER, "8589934592", "")                                                  \
    X(master, client_ttl, NUMBER, "10",                                                            \
      "seconds without a heartbeat after which a node is out (directory.lease_ms)")        \
    X(master, nof_heartbeat_interval_sec, NUMBER, "10", "")                                        \
    X(master, nof_heartbeat_probe_timeout_ms, NUMBER, "1000", "")                                  \
    X(master, nof_heartbeat_failures_threshold, NUMBER, "3", "")                                   \
    X(master, enable_offload, SWITCH, "false", "")                                                 \
    X(master, offload_on_evict, SWITCH, "false", "")                                               \
    X(master, offload_force_evict, SWITCH, "false", "")                                            \
    X(master, offloading_queue_limit, NUMBER, "50000", "")                                         \
    X(master, offload_cap_ratio, NUMBER, "0.5", "")                                                \
    X(master, promotion_on_hit, SWITCH, "false", "")                                               \
    X(master, promotion_admission_threshold, NUMBER, "2", "")                                      \
    X(master, promotion_queue_limit, NUMBER, "50000", "")                                          \
    X(master, promotion_max_per_heartbeat, NUMBER, "1", "")                                        \
    X(master, dynamic_replication_mode, TEXT, "off", "")                                           \
    X(master, dynamic_replication_heat_window_seconds, NUMBER, "10", "")                           \
    X(master, dynamic_replication_admission_qps_threshold, NUMBER, "0.8", "")                      \
    X(master, dynamic_replication_max_memory_replicas, NUMBER, "2", "")                            \
    X(master, enable_kv_events, SWITCH, "false", "")                                               \
    X(master, kv_events_bind_endpoint, TEXT, "", "")                                               \
    X(master, kv_events_backend_id, TEXT, "", "")                                                  \
    X(master, kv_events_emit_legacy_compat, SWITCH, "true", "")                                    \
    X(master, kv_events_emit_object_key, SWITCH, "true", "")                                       \
    X(master, kv_events_queue_capacity, NUMBER, "65536", "")                                       \
    X(master, kv_events_model_name, TEXT, "", "")                                                  \
    X(master, kv_events_tenant_id, TEXT, "default", "")                                            \
    X(master, kv_events_lora_name, TEXT, "", "")                                                   \
    X(master, kv_events_additional_salt, TEXT, "", "")                                             \
    X(master, kv_events_block_size, NUMBER, "0", "")                                               \
    X(master, kv_events_dp_rank, NUMBER, "0", "")                                                  \
    X(master, enable_ha, SWITCH, "false", "")                                                      \
    X(master, ha_backend_type, TEXT, "etcd", "")                                                   \
    X(master, ha_backend_connstring, TEXT, "", "")                                                 \
    X(master, etcd_endpoints, TEXT, "", "")                                                        \
    X(master, cluster_id, TEXT, "mooncake_cluster", "")                                            \
    X(master, enable_oplog, SWITCH, "false", "")                                                   \
    X(master, oplog_poll_interval_ms, NUMBER, "1000", "")                                          \
    X(master, oplog_batch_max_entries, NUMBER, "1024", "")                                         \
    X(master, batch_oplog_retry_timeout_sec, NUMBER, "180", "")                                    \
    X(master, pod_name, TEXT, "", "")                                                              \
    X(master, pod_namespace, TEXT, "", "")                                                         \
    X(master, enable_snapshot, SWITCH, "false", "")                                                \
    X(master, enable_snapshot_restore, SWITCH, "false", "")                                        \
    X(master, snapshot_interval_seconds, NUMBER, "600", "")                                        \
    X(master, snapshot_child_timeout_seconds, NUMBER, "300", "")                                   \
    X(master, snapshot_retention_count, NUMBER, "2", "")                                           \
    X(master, snapshot_object_store_type, TEXT, "", "")                                            \
    X(master, snapshot_catalog_store_type, TEXT, "", "")                                           \
    X(master, snapshot_catalog_store_connstring, TEXT, "", "")                                     \
    X(master, snapshot_backup_dir, TEXT, "", "")                                                   \
    X(master, snapshot_payload_store_type, TEXT, "", "")                                           \
    X(master, snapshot_payload_backend_type, TEXT, "", "")                                         \
    X(master, snapshot_catalog_backend_type, TEXT, "", "")                                         \
    X(master, snapshot_catalog_backend_connstring, TEXT, "", "")                                   \
    X(master, root_fs_dir, TEXT, "", "")                                                           \
    X(master, global_file_segment_size, NUMBER, "9223372036854775807", "")                         \
    X(master, enable_disk_eviction, SWITCH, "true", "")                                            \
    X(master, quota_bytes, NUMBER, "0", "")                                                        \
    X(master, enable_multi_tenants, SWITCH, "false", "")                                           \
    X(master, tenant_quota_connector_type, TEXT, "file", "")                                       \
    X(master, tenant_quota_connector_uri, TEXT, "", "")                                            \
    X(master, max_total_finished_tasks, NUMBER, "10000", "")                                       \
    X(master, max_total_pending_tasks, NUMBER, "10000", "")                                        \
    X(master, max_total_processing_tasks, NUMBER, "10000", "")                                     \
    X(master, pending_task_timeout_sec, NUMBER, "300", "")                                         \
    X(master, processing_task_timeout_sec, NUMBER, "300", "")                                      \
    X(master, max_retry_attempts, NUMBER, "10", "")                                                \
    YB_KNOWN_COMMON_MAP(X, master)                                                                 \
    X(client, host, TEXT, "0.0.0.0", "address of the node; 0.0.0.0: the one that faces the master") \
    X(client, port, NUMBER, "50052", "port of the node, and part of its socket's name")            \
    X(client, global_segment_size, TEXT, "4 GB", "memory for blocks (node.memory)")                \
    X(client, local_buffer_size, TEXT, "0", "")                                                    \
    X(client, master_server_address, TEXT, "127.0.0.1:50051", "where the directory is")            \
    X(client, metadata_server, TEXT, "http://127.0.0.1:8080/metadata", "")                         \
    X(client, protocol, TEXT, "tcp", "")                                                           \
    X(client, device_names, TEXT, "", "")                                                          \
    X(client, threads, NUMBER, "1", "")                                                            \
    X(client, tenant_id, TEXT, "default", "whose blocks dummies put and get (auth.tenant)")        \
    X(client, enable_offload, SWITCH, "false", "")                                                 \
    X(client, start_offload_rpc_server, SWITCH, "true", "")                                        \
    X(client, enable_http_server, SWITCH, "false", "opens the HTTP paths")                         \
    X(client, http_port, NUMBER, "9300", "port of the HTTP paths")                                 \
    YB_KNOWN_COMMON_MAP(X, client)                                                                 \
    X(metadata, host, TEXT, "0.0.0.0", "address")                                                  \
    X(metadata, port, NUMBER, "8080", "port")                                                      \
    X(metadata, log_level, TEXT, "INFO", "")
/* clang-format on */

/* Index of a flag: YB_KNOWN_FLAG_master_port. */
enum yb_known_flag_index {
#define X(command, name, type, usual, effect) YB_KNOWN_FLAG_##command##_##name,
    YB_KNOWN_FLAG_MAP(X)
#undef X
        YB_KNOWN_FLAGS
};

struct yb_known_flag {
    enum yb_known_command command;
    const char *name;
    enum yb_known_type type;
    const char *usual;
    const char *effect;
};

/* The whole table: YB_KNOWN_FLAGS rows. Static. */
const struct yb_known_flag *yb_known_flags(void);
/* "mooncake_master" ... Static. */
const char *yb_known_command_name(enum yb_known_command command);

#define YB_KNOWN_VALUE_MAX 512u

/* What the flags of one command are. */
struct yb_known_values {
    char text[YB_KNOWN_FLAGS][YB_KNOWN_VALUE_MAX];
    bool given[YB_KNOWN_FLAGS];
};

/* Read a command line, and the file that it may name. False, after saying on `err` what is wrong.
 * What is without effect is named on `err`, once. */
bool yb_known_parse(enum yb_known_command command, int argc, char **argv,
                    struct yb_known_values *values_out, FILE *err);

/* Run one of the commands. */
int yb_known_main(enum yb_known_command command, int argc, char **argv, char *const *environment,
                  FILE *out, FILE *err);

#endif /* YB_CLI_KNOWN_H */
