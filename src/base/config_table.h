/* SPDX-License-Identifier: Apache-2.0
 *
 * config_table.h -- every parameter there is: one row each.
 *
 * The rows make the struct (base/config.h), the environment names, the command
 * line options, the checks, `yuebing config`, docs/config.md, the man pages and
 * the shell completion. Add a row, run tools/gen/docs.sh, and all of them know it.
 *
 * Columns of YB_CONFIG_MAP
 *   section, name  `[section]` and `name =` in the file; YUEBING_<SECTION>_<NAME>
 *                  in the environment; --<section>-<name> on the command line;
 *                  config->section_name in C.
 *   type           BOOL, U32, U64, BYTES (k, m, g, t are powers of 1024), MS (a
 *                  duration; the name ends in _ms; 250, 250ms and 5s are
 *                  understood), STRING, PATH, ENUM, or ID (32 hex digits).
 *   unit           What is counted, for people to read.
 *   default        As text, so that the default goes the way every value goes.
 *   low, high      Inclusive. For STRING and PATH: of the length in bytes.
 *   choices        A row of YB_CONFIG_CHOICES_MAP for ENUM, otherwise `none`.
 *   alias          A second, short name: --<alias> and YUEBING_<ALIAS>; "" for none.
 *   help           One line without a full stop.
 *
 * No row may hold a secret: secrets live in files, rows hold their paths.
 */
#ifndef YB_BASE_CONFIG_TABLE_H
#define YB_BASE_CONFIG_TABLE_H

#define YB_CONFIG_KIB (1024ull)
#define YB_CONFIG_MIB (1024ull * YB_CONFIG_KIB)
#define YB_CONFIG_GIB (1024ull * YB_CONFIG_MIB)
#define YB_CONFIG_TIB (1024ull * YB_CONFIG_GIB)

/* Longest STRING and PATH, without the NUL. */
#define YB_CONFIG_STRING_MAX 255
#define YB_CONFIG_PATH_MAX   1023

/* Names in the environment that begin with YUEBING_ and are not rows. Any other unknown one
 * refuses to start, for it is nearly always a misspelt row. */
/* clang-format off */
#define YB_CONFIG_ENVIRONMENT_OTHER_MAP(X)                                                \
    X("YUEBING_TEST_SEED", "seed of the random tests; read by the test programs only")    \
    X("YUEBING_TEST_LONG", "long forms of the tests; read by the test programs only")     \
    X("YUEBING_TRACES", "the published request traces: a directory; read by simulations")

/* Names of the known system that its users set, and that we honour: read by src/compat alone. */
#define YB_CONFIG_FOREIGN_MAP(X)                                                          \
    X("MC_FORCE_TCP", "1: move bytes over TCP only, also on one host")                    \
    X("MC_TRANSFER_TIMEOUT", "seconds for one transfer, beside 1 ns a byte: 30, at least 5") \
    X("MC_MIN_RPC_PORT", "first port that an engine may take: 15000")                     \
    X("MC_MIN_PRC_PORT", "the same, as it was misspelt once")                             \
    X("MC_MAX_RPC_PORT", "last port that an engine may take: 17000")                      \
    X("MC_HANDSHAKE_CONNECT_TIMEOUT", "seconds that a probe of a peer waits: 5")          \
    X("MC_METADATA_CLUSTER_ID", "part of the keys at an http:// metadata server")         \
    X("MC_STORE_CLIENT_MIN_PORT", "first port that a store's client may take: 12300")     \
    X("MC_STORE_CLIENT_MAX_PORT", "last port that a store's client may take: 14300")

/* Names that everything which speaks to S3 honours: read by src/tier/object alone. */
#define YB_CONFIG_S3_MAP(X)                                                               \
    X("AWS_ACCESS_KEY_ID", "who we are; with AWS_SECRET_ACCESS_KEY it goes before the files") \
    X("AWS_SECRET_ACCESS_KEY", "the secret that proves it")                               \
    X("AWS_SESSION_TOKEN", "of credentials that are lent for a while")                    \
    X("AWS_PROFILE", "section of the credentials file: default")                          \
    X("AWS_SHARED_CREDENTIALS_FILE", "instead of ~/.aws/credentials")                     \
    X("AWS_REGION", "where the bucket is: us-east-1")                                     \
    X("AWS_DEFAULT_REGION", "the same, after AWS_REGION")                                 \
    X("AWS_ENDPOINT_URL_S3", "the service's URL: that of AWS in the region")              \
    X("AWS_ENDPOINT_URL", "the same, after AWS_ENDPOINT_URL_S3")                          \
    X("AWS_CA_BUNDLE", "PEM file of the authorities that are trusted: the system's")      \
    X("HOME", "where .aws/credentials is")

#define YB_CONFIG_SECTION_MAP(X)                                                          \
    X(config,  "where the configuration comes from")                                      \
    X(net,     "listening, connections, limits and flow control")                         \
    X(auth,    "who we are to our peers, and the secret that proves it")                  \
    X(tls,     "encryption of control and data connections")                              \
    X(cluster, "which cluster this process belongs to")                                   \
    X(directory, "the index of blocks: where it is, what it keeps")                       \
    X(node,    "the memory for blocks, and what is told of it")                           \
    X(http,    "the admin port: health, metrics, a look at the store")                    \
    X(conductor, "where requests run: policies, objectives, the log of decisions")        \
    X(log,     "what is logged, and how")                                                 \
    X(trace,   "spans of requests and transfers")

#define YB_CONFIG_CHOICES_net_io(C)                                                       \
    C(YB_CONFIG_NET_IO_AUTO,     "auto")                                                  \
    C(YB_CONFIG_NET_IO_EPOLL,    "epoll")                                                 \
    C(YB_CONFIG_NET_IO_IO_URING, "io_uring")

#define YB_CONFIG_CHOICES_auth_role(C)                                                    \
    C(YB_CONFIG_AUTH_ROLE_CLIENT,    "client")                                            \
    C(YB_CONFIG_AUTH_ROLE_NODE,      "node")                                              \
    C(YB_CONFIG_AUTH_ROLE_DIRECTORY, "directory")                                         \
    C(YB_CONFIG_AUTH_ROLE_ADMIN,     "admin")

#define YB_CONFIG_CHOICES_tls_mode(C)                                                     \
    C(YB_CONFIG_TLS_MODE_OFF, "off")                                                      \
    C(YB_CONFIG_TLS_MODE_ON,  "on")

#define YB_CONFIG_CHOICES_log_level(C)                                                    \
    C(YB_CONFIG_LOG_LEVEL_ERROR, "error")                                                 \
    C(YB_CONFIG_LOG_LEVEL_WARN,  "warn")                                                  \
    C(YB_CONFIG_LOG_LEVEL_INFO,  "info")                                                  \
    C(YB_CONFIG_LOG_LEVEL_DEBUG, "debug")                                                 \
    C(YB_CONFIG_LOG_LEVEL_TRACE, "trace")

#define YB_CONFIG_CHOICES_log_format(C)                                                   \
    C(YB_CONFIG_LOG_FORMAT_TEXT, "text")                                                  \
    C(YB_CONFIG_LOG_FORMAT_JSON, "json")

#define YB_CONFIG_CHOICES_node_policy(C)                                                  \
    C(YB_CONFIG_NODE_POLICY_LRU,          "lru")                                          \
    C(YB_CONFIG_NODE_POLICY_LFU,          "lfu")                                          \
    C(YB_CONFIG_NODE_POLICY_S3FIFO,       "s3fifo")                                       \
    C(YB_CONFIG_NODE_POLICY_FIFO,         "fifo")                                         \
    C(YB_CONFIG_NODE_POLICY_SIEVE,        "sieve")                                        \
    C(YB_CONFIG_NODE_POLICY_LENGTH_AWARE, "length-aware")                                 \
    C(YB_CONFIG_NODE_POLICY_WORKLOAD,     "workload")                                     \
    C(YB_CONFIG_NODE_POLICY_BIDAW,        "bidaw")                                        \
    C(YB_CONFIG_NODE_POLICY_TRAJECTORY,   "trajectory")

#define YB_CONFIG_CHOICES_node_write_policy(C)                                            \
    C(YB_CONFIG_NODE_WRITE_POLICY_BACK,      "back")                                      \
    C(YB_CONFIG_NODE_WRITE_POLICY_THROUGH,   "through")                                   \
    C(YB_CONFIG_NODE_WRITE_POLICY_SELECTIVE, "selective")

#define YB_CONFIG_CHOICES_node_ssd_io(C)                                                  \
    C(YB_CONFIG_NODE_SSD_IO_AUTO,     "auto")                                             \
    C(YB_CONFIG_NODE_SSD_IO_IO_URING, "io_uring")                                         \
    C(YB_CONFIG_NODE_SSD_IO_THREADS,  "threads")

#define YB_CONFIG_CHOICES_node_object_layout(C)                                           \
    C(YB_CONFIG_NODE_OBJECT_LAYOUT_BLOCK,  "block")                                       \
    C(YB_CONFIG_NODE_OBJECT_LAYOUT_PACKED, "packed")

#define YB_CONFIG_CHOICES_conductor_mode(C)                                               \
    C(YB_CONFIG_CONDUCTOR_MODE_COUPLED,       "coupled")                                  \
    C(YB_CONFIG_CONDUCTOR_MODE_DISAGGREGATED, "disaggregated")                            \
    C(YB_CONFIG_CONDUCTOR_MODE_TIME_SLICED,   "time-sliced")

#define YB_CONFIG_CHOICES_MAP(L)                                                          \
    L(conductor_mode)                                                                     \
    L(node_write_policy) L(node_ssd_io) L(node_object_layout)                             \
    L(net_io) L(node_policy) L(auth_role) L(tls_mode) L(log_level) L(log_format)

/*    section  name                  type    unit           default  low high choices alias
 *      help */
#define YB_CONFIG_MAP(X)                                                                  \
    X(config,  file,                 PATH,   "path",        "",                           \
      0, YB_CONFIG_PATH_MAX, none, "config",                                              \
      "INI file to read; empty for none")                                                 \
    X(net,     listen,               STRING, "address",     "127.0.0.1:14700",            \
      1, YB_CONFIG_STRING_MAX, none, "listen",                                            \
      "address and port to listen on; port 0 takes any free one")                         \
    X(net,     io,                   ENUM,   "",            "auto",                       \
      0, 0, net_io, "",                                                                   \
      "how sockets are driven; auto takes the one that was measured to be faster")        \
    X(net,     workers,              U32,    "threads",     "1",                          \
      1, 256, none, "workers",                                                            \
      "nodes that a process runs, each with its own thread, unless node.count says so")                                           \
    X(net,     spin_us,              U32,    "us",          "50",                         \
      0, 1000, none, "",                                                                  \
      "longest time a busy worker polls before it sleeps")                                \
    X(net,     congestion,           STRING, "algorithm",   "cubic",                      \
      1, 15, none, "",                                                                    \
      "TCP congestion control, set per socket; system leaves the kernel's default")       \
    X(net,     handshake_timeout_ms, MS,     "ms",          "3000",                       \
      10, 600000, none, "",                                                               \
      "a peer that has not finished its hello by then is dropped")                        \
    X(net,     frame_timeout_ms,     MS,     "ms",          "10000",                      \
      10, 600000, none, "",                                                               \
      "a frame that was begun has to be complete by then")                                \
    X(net,     idle_ping_ms,         MS,     "ms",          "15000",                      \
      100, 3600000, none, "",                                                             \
      "a connection silent for this long is asked whether it lives")                      \
    X(net,     connect_timeout_ms,   MS,     "ms",          "2000",                       \
      10, 600000, none, "",                                                               \
      "longest time to wait for a connection to be made")                                 \
    X(net,     connections_max,      U32,    "connections", "16384",                      \
      1, 1048576, none, "",                                                               \
      "connections accepted at the same time")                                            \
    X(net,     unauthenticated_max,  U32,    "connections", "1024",                       \
      1, 1048576, none, "",                                                               \
      "connections that have not proved who they are, at the same time")                  \
    X(net,     request_credits,      U32,    "requests",    "256",                        \
      1, 65536, none, "",                                                                 \
      "requests a peer may have unanswered on one connection")                            \
    X(net,     byte_credits,         BYTES,  "bytes",       "64m",                        \
      64 * YB_CONFIG_KIB, 64 * YB_CONFIG_GIB, none, "",                                   \
      "bytes a peer may have unanswered on one connection")                               \
    X(net,     body_bytes_max,       BYTES,  "bytes",       "1m",                         \
      4 * YB_CONFIG_KIB, YB_CONFIG_GIB, none, "",                                         \
      "largest body of one message")                                                      \
    X(net,     data_bytes_max,       BYTES,  "bytes",       "1t",                         \
      4 * YB_CONFIG_KIB, 256 * YB_CONFIG_TIB, none, "",                                   \
      "most bytes of bulk data behind one message")                                       \
    X(net,     unsent_bytes_max,     BYTES,  "bytes",       "256k",                       \
      16 * YB_CONFIG_KIB, YB_CONFIG_GIB, none, "",                                        \
      "most bytes the kernel may hold unsent for one connection")                         \
    X(net,     drain_ms,             MS,     "ms",          "1500",                       \
      0, 600000, none, "",                                                                \
      "time given to running requests when the process stops")                            \
    X(net,     committed_bytes_max,  BYTES,  "bytes",       "256k",                       \
      4 * YB_CONFIG_KIB, YB_CONFIG_GIB, none, "",                                         \
      "unsent bytes a connection takes before further calls have to wait")                \
    X(net,     calls_waiting_max,    U32,    "calls",       "4096",                       \
      1, 1048576, none, "",                                                               \
      "calls that may wait for one peer")                                                 \
    X(net,     requests_max,         U32,    "requests",    "65536",                      \
      1, 16777216, none, "",                                                              \
      "requests one worker serves at the same time, all connections together")            \
    X(net,     bodies_bytes_max,     BYTES,  "bytes",       "256m",                       \
      YB_CONFIG_MIB, 1024 * YB_CONFIG_GIB, none, "",                                      \
      "bodies that one worker may be putting together, all connections together")         \
    X(net,     replay_records,       U32,    "operations",  "65536",                      \
      1, 16777216, none, "",                                                              \
      "mutations outstanding at callers whose answers are remembered, in case that they ask again")                \
    X(net,     replay_bytes,         BYTES,  "bytes",       "16m",                        \
      64 * YB_CONFIG_KIB, 64 * YB_CONFIG_GIB, none, "",                                   \
      "bytes of remembered answers")                                                      \
    X(auth,    secret_file,          PATH,   "path",        "",                           \
      0, YB_CONFIG_PATH_MAX, none, "secret-file",                                         \
      "file with the shared secret, readable by its owner only; empty for none")          \
    X(auth,    insecure,             BOOL,   "",            "false",                      \
      0, 1, none, "insecure",                                                             \
      "serve beyond loopback without a secret: whoever reaches the port may do anything") \
    X(auth,    require,              BOOL,   "",            "false",                      \
      0, 1, none, "require-auth",                                                         \
      "refuse to run without a secret, on loopback too")                                  \
    X(auth,    role,                 ENUM,   "",            "client",                     \
      0, 0, auth_role, "",                                                                \
      "what this process proves to be to its peers")                                      \
    X(auth,    tenant,               STRING, "name",        "default",                    \
      1, 128, none, "tenant",                                                             \
      "tenant whose keys a client uses")                                                  \
    X(tls,     mode,                 ENUM,   "",            "off",                        \
      0, 0, tls_mode, "tls",                                                              \
      "TLS 1.3 on every connection")                                                      \
    X(tls,     cert_file,            PATH,   "path",        "",                           \
      0, YB_CONFIG_PATH_MAX, none, "",                                                    \
      "certificate chain (PEM); empty: one is made at start")                             \
    X(tls,     key_file,             PATH,   "path",        "",                           \
      0, YB_CONFIG_PATH_MAX, none, "",                                                    \
      "private key (PEM) of the certificate; empty: one is made at start")                \
    X(tls,     ca_file,              PATH,   "path",        "",                           \
      0, YB_CONFIG_PATH_MAX, none, "",                                                    \
      "authorities (PEM) that every peer's certificate must come from; empty: none")      \
    X(tls,     peer_name,            STRING, "name",        "",                           \
      0, YB_CONFIG_STRING_MAX, none, "",                                                  \
      "name that a server's verified certificate must carry; empty: any")                 \
    X(cluster, id,                   ID,     "",            "",                           \
      0, 0, none, "",                                                                     \
      "cluster that peers must name too: 32 hex digits; empty takes any")                 \
    X(directory, address,            STRING, "address",     "127.0.0.1:14700",            \
      1, YB_CONFIG_STRING_MAX, none, "directory",                                         \
      "where the directory serves")                                                       \
    X(directory, cluster_file,       PATH,   "path",        "",                           \
      0, YB_CONFIG_PATH_MAX, none, "cluster-file",                                        \
      "what a directory must remember when it starts again; empty: a new cluster")        \
    X(directory, object_store,       STRING, "url",         "",                           \
      0, YB_CONFIG_STRING_MAX, none, "",                                                  \
      "the nodes', to go on as its cluster without a file; empty: node.object_store")     \
    X(directory, lease_ms,           MS,     "ms",          "2000",                       \
      100, 60000, none, "",                                                               \
      "how long an answered heartbeat permits a node to serve")                           \
    X(directory, records,            U64,    "blocks",      "16777216",                   \
      1024, 2147483648, none, "",                                                         \
      "blocks that the directory knows at most")                                          \
    X(directory, writes,             U32,    "writes",      "65536",                      \
      1024, 16777216, none, "",                                                           \
      "announced and recent writes that the directory remembers")                         \
    X(directory, events,             U32,    "events",      "65536",                      \
      1024, 16777216, none, "",                                                           \
      "events kept for subscribers; a power of two")                                      \
    X(node,    name,                 STRING, "name",        "",                           \
      0, 63, none, "name",                                                                \
      "what people call this node; empty: its address")                                   \
    X(node,    listen,               STRING, "address",     "127.0.0.1:0",                \
      1, YB_CONFIG_STRING_MAX, none, "",                                                  \
      "address and port of a node; port 0 takes any free one")                            \
    X(node,    count,                U32,    "nodes",       "0",                          \
      0, 64, none, "nodes",                                                               \
      "nodes in this process, each with its part of the memory; 0: as many as net.workers") \
    X(node,    memory,               BYTES,  "bytes",       "256m",                        \
      1 * YB_CONFIG_MIB, 64 * YB_CONFIG_TIB, none, "memory",                              \
      "memory for blocks, of all nodes of this process together")                         \
    X(node,    huge_pages,           BOOL,   "",            "false",                      \
      0, 1, none, "",                                                                     \
      "ask for huge pages; node check shows what came of it")                             \
    X(node,    numa,                 U32,    "node",        "4294967295",                 \
      0, 4294967295, none, "",                                                            \
      "NUMA node of the memory; 4294967295: any")                                         \
    X(node,    policy,               ENUM,   "",            "s3fifo",                     \
      0, 0, node_policy, "",                                                              \
      "which blocks go first when memory is short")                                       \
    X(node,    high_permille,        U32,    "permille",    "950",                        \
      10, 1000, none, "",                                                                 \
      "evict when more of the memory is used")                                            \
    X(node,    low_permille,         U32,    "permille",    "900",                        \
      10, 1000, none, "",                                                                 \
      "evict until no more than this is used")                                            \
    X(node,    ungranted_permille,   U32,    "permille",    "250",                        \
      10, 1000, none, "",                                                                 \
      "share of the memory for blocks that are being written or wait for grants")         \
    X(node,    pinned_permille,      U32,    "permille",    "250",                        \
      10, 1000, none, "",                                                                 \
      "share of the memory that one client may pin")                                      \
    X(node,    verify,               BOOL,   "",            "false",                      \
      0, 1, none, "",                                                                     \
      "sum every 64 KiB of a block, and compare before it is read")                       \
    X(node,    data_dir,             PATH,   "path",        "",                           \
      0, YB_CONFIG_PATH_MAX, none, "data-dir",                                            \
      "folder in which a node keeps blocks on its disk, and who it is; empty: none")      \
    X(node,    ssd_bytes,            BYTES,  "bytes",       "0",                          \
      0, 64 * YB_CONFIG_TIB, none, "",                                                    \
      "size of the log in that folder, of all nodes together; 0: 64 GiB each")            \
    X(node,    ssd_write_budget,     BYTES,  "bytes",       "0",                          \
      0, 1024 * YB_CONFIG_TIB, none, "",                                                  \
      "bytes a day that may be written to that log, of all nodes together; 0: no bound")  \
    X(node,    ssd_io,               ENUM,   "",            "auto",                       \
      0, 0, node_ssd_io, "",                                                              \
      "how the disk is driven; auto takes io_uring where it is allowed")                  \
    X(node,    object_store,         STRING, "url",         "",                           \
      0, YB_CONFIG_STRING_MAX, none, "object-store",                                      \
      "file:FOLDER or s3://BUCKET?endpoint=URL, behind all other tiers; empty: none")     \
    X(node,    object_layout,        ENUM,   "",            "block",                      \
      0, 0, node_object_layout, "",                                                       \
      "an object for each block, or small blocks gathered in objects")                    \
    X(node,    write_policy,         ENUM,   "",            "through",                    \
      0, 0, node_write_policy, "",                                                        \
      "when blocks go down: when they come, with an access, or when memory is short")     \
    X(node,    write_accesses,       U32,    "accesses",    "2",                          \
      1, 255, none, "",                                                                   \
      "with so many accesses a block goes down, if the write policy is selective")        \
    X(node,    rack,                 STRING, "name",        "",                           \
      0, 31, none, "rack",                                                                \
      "rack of this machine; replicas avoid sharing one")                                 \
    X(node,    zone,                 STRING, "name",        "",                           \
      0, 31, none, "zone",                                                                \
      "zone of this machine; replicas avoid sharing one")                                 \
    X(http,    listen,               STRING, "address",     "",                           \
      0, YB_CONFIG_STRING_MAX, none, "http",                                              \
      "address and port of the admin port, such as 127.0.0.1:14780; empty: none")         \
    X(http,    watch,                STRING, "addresses",   "",                           \
      0, YB_CONFIG_STRING_MAX, none, "http-watch",                                        \
      "admin ports of other processes that the dashboard shows, too: host:port,host:port") \
    X(conductor, serve,              BOOL,   "",            "false",                      \
      0, 1, none, "conductor",                                                            \
      "serve: answer the calls of a conductor on the admin port, too")                    \
    X(conductor, routing,            STRING, "name",        "ready",                      \
      1, 31, none, "policy",                                                              \
      "who gets a request; docs/scheduling.md lists the policies")                        \
    X(conductor, admission,          STRING, "name",        "none",                       \
      1, 31, none, "admission",                                                           \
      "who gets in: none, early or early-predicted")                                      \
    X(conductor, mode,               ENUM,   "",            "coupled",                    \
      0, 0, conductor_mode, "mode",                                                       \
      "prefill and decode at one instance, at two, or at one in turns")                   \
    X(conductor, standalone,         BOOL,   "",            "false",                      \
      0, 1, none, "standalone",                                                           \
      "there is no store: what is known comes from the instances' reports alone")         \
    X(conductor, number,             U32,    "conductor",   "0",                          \
      0, 15, none, "",                                                                    \
      "which of several conductors side by side this is")                                 \
    X(conductor, places_max,         U32,    "places",      "1024",                       \
      1, 16384, none, "",                                                                 \
      "instances and nodes at most")                                                      \
    X(conductor, blocks_max,         U32,    "blocks",      "1048576",                    \
      1024, 268435456, none, "",                                                          \
      "blocks that are known of at most, for each model: 24 bytes each")                  \
    X(conductor, requests_max,       U32,    "requests",    "16384",                      \
      64, 1048576, none, "",                                                              \
      "requests under way at most; older ones are forgotten")                             \
    X(conductor, block_tokens,       U32,    "tokens",      "512",                        \
      1, 65536, none, "block-tokens",                                                     \
      "tokens of a block")                                                                \
    X(conductor, ttft_slo_ms,        MS,     "ms",          "0",                          \
      0, 3600000, none, "ttft",                                                           \
      "a first token is wanted within, unless a request says otherwise; 0: no limit")     \
    X(conductor, tbt_slo_ms,         MS,     "ms",          "0",                          \
      0, 3600000, none, "tbt",                                                            \
      "and each further one; 0: no limit")                                                \
    X(conductor, expire_ms,          MS,     "ms",          "3000",                       \
      100, 3600000, none, "",                                                             \
      "an instance that has not reported for so long gets no requests")                   \
    X(conductor, node_rate,          BYTES,  "bytes",       "1g",                         \
      1, 64 * YB_CONFIG_TIB, none, "",                                                    \
      "bytes a second of a node's links, unless an instance has told them")               \
    X(conductor, moves,              BOOL,   "",            "true",                       \
      0, 1, none, "",                                                                     \
      "order nodes of the store to bring up, or copy, what decisions need; off: engines fetch")   \
    X(conductor, heat_ms,            MS,     "ms",          "10000",                      \
      0, 3600000, none, "",                                                               \
      "how often hot blocks come from the object store to memory, as background; 0: never")       \
    X(conductor, log_file,           PATH,   "path",        "",                           \
      0, YB_CONFIG_PATH_MAX, none, "decision-log",                                        \
      "where all that was told and decided is written, to be run again; empty: nowhere")  \
    X(conductor, log_bytes,          BYTES,  "bytes",       "256m",                       \
      1 * YB_CONFIG_MIB, 64 * YB_CONFIG_TIB, none, "",                                    \
      "bound of that file; the log ends there")                                           \
    X(log,     level,                ENUM,   "",            "info",                       \
      0, 0, log_level, "log-level",                                                       \
      "least serious line that is logged; trace needs a build with YB_LOG_TRACE")         \
    X(log,     format,               ENUM,   "",            "text",                       \
      0, 0, log_format, "log-format",                                                     \
      "text for people, or json with one object a line")                                  \
    X(log,     lines_per_second,     U32,    "lines",       "5",                          \
      1, 100000, none, "",                                                                \
      "lines a second that one place in the code may log; the rest is counted")           \
    X(trace,   ring_records,         U32,    "spans",       "65536",                      \
      64, 1048576, none, "",                                                              \
      "spans remembered in memory, the newest ones; rounded up to a power of two")        \
    X(trace,   otlp_url,             STRING, "url",         "",                           \
      0, YB_CONFIG_STRING_MAX, none, "otlp",                                              \
      "OpenTelemetry collector that gets spans: http://HOST:4318/v1/traces; empty: none") \
    X(trace,   otlp_timeout_ms,      MS,     "ms",          "5000",                       \
      100, 60000, none, "",                                                               \
      "for one request to the collector")
/* clang-format on */

#endif /* YB_BASE_CONFIG_TABLE_H */
