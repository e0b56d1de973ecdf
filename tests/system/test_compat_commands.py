# SPDX-License-Identifier: Apache-2.0
"""The known system's commands, started as scripts and charts do: flags, ports, paths, trust."""
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import urllib.parse

from yuebing import DEADLINE_S, PROGRAM, case, environment, expect, folder, main, new_secret, until

FOLDER = os.path.dirname(PROGRAM)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Command:
    """One of the commands, until the end of the block."""

    def __init__(self, name, *words, **more):
        self.process = subprocess.Popen([os.path.join(FOLDER, name), *words],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={**environment(), **more})

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.out, self.err = (b.decode() for b in self.process.communicate(timeout=DEADLINE_S))
        self.code = self.process.returncode


def ask(port, path, method="GET", body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    with contextlib.closing(connection):
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def answers(port, path):
    with contextlib.suppress(OSError):
        return ask(port, path)
    return None


def refused(name, *words, **more):
    done = subprocess.run([os.path.join(FOLDER, name), *words], capture_output=True, check=False,
                          timeout=DEADLINE_S, env={**environment(), **more})
    expect(done.returncode == 2, f"{words}: {done.returncode}")
    return done.stderr.decode()


@case("a master and a client start with the flags of scripts, and every path answers")
def _():
    rpc, metrics, metadata, node, client = (free_port() for _ in range(5))
    master = Command("mooncake_master", "-rpc_port", str(rpc), "--rpc_address=127.0.0.1",
                     f"-metrics_port={metrics}", "--noenable_oplog", "--v=1",
                     "--enable_http_metadata_server", f"--http_metadata_server_port={metadata}",
                     "--eviction_high_watermark_ratio", "0.95", "--client_ttl=5")
    with master:
        until(lambda: answers(metrics, "/health"), "the master is there")
        expect(ask(metrics, "/get_all_segments") == (200, ""), "none: empty")
        with Command("mooncake_client", f"--port={node}", f"--http_port={client}",
                     "--enable_http_server", f"--master_server_address=127.0.0.1:{rpc}",
                     "--global_segment_size=16 MB", "--host", "127.0.0.1", "--protocol=tcp"):
            name = f"127.0.0.1:{node}"
            until(lambda: ask(metrics, "/get_all_segments")[1] == name + "\n", "the segment")
            put = subprocess.run([PROGRAM, "put", "a/b c", "--directory", f"127.0.0.1:{rpc}"],
                                 input=b"x" * 5000, capture_output=True, env=environment(),
                                 check=False)
            expect(put.returncode == 0, put.stderr.decode())
            until(lambda: ask(metrics, "/get_all_keys")[1] == "a/b c\n", "the key")
            key = urllib.parse.quote("a/b c")
            code, text = ask(metrics, f"/query_key?key={key}")
            found = json.loads(text)["data"]
            expect(code == 200 and len(found) == 1 and found[0]["size_"] == 5000 and
                   found[0]["transport_endpoint_"] == name, text)
            code, text = ask(metrics, "/query_key?key=a")
            expect(code == 404 and json.loads(text)["error_code"] == -704, "a beginning is no key")
            expect(ask(metrics, "/query_key")[0] == 400, "no key")
            found = json.loads(ask(metrics, f"/batch_query_keys?keys={key},none")[1])["data"]
            expect(found["a/b c"]["ok"] and found["a/b c"]["values"][0]["size_"] == 5000 and
                   not found["none"]["ok"] and found["none"]["values"] is None, str(found))
            found = json.loads(ask(metrics, "/get_segments_detail")[1])
            expect(found["total_segments"] == 1 and found["segments"][0]["segment_name"] == name and
                   found["segments"][0]["size_bytes"] == 16 << 20 and
                   found["segments"][0]["status"] == "OK", str(found))
            code, text = ask(metrics, f"/query_segment?segment={name}")
            lines = text.splitlines()
            expect(code == 200 and lines[0] == name and lines[1].startswith("Used(bytes): ") and
                   lines[2] == "Capacity(bytes) : 16777216", text)
            expect(ask(metrics, "/query_segment?segment=no")[0] == 404, "no such segment")
            code, text = ask(metrics, f"/api/v1/segments/status?segment={name}")
            found = json.loads(text)
            expect(code == 200 and (found["success"], found["status"], found["status_name"]) ==
                   (True, 1, "OK"), text)
            code, text = ask(metrics, "/api/v1/segments/status?segment=no")
            expect(code == 404 and json.loads(text)["error_code"] == -101, text)
            for method, path in (("POST", ""), ("GET", "/query?job_id=1"), ("POST", "/cancel")):
                code, text = ask(metrics, "/api/v1/drain_jobs" + path, method)
                expect(code == 501 and "yuebing drain" in json.loads(text)["error_message"], text)
            expect(ask(metrics, "/api/v1/tenant_quotas")[0] == 409, "no quotas over HTTP")
            code, text = ask(metrics, "/metrics")
            for line in ("yuebing_auth_open 1", "master_active_clients 1",
                         "master_total_capacity_bytes 16777216",
                         f'segment_total_capacity_bytes{{segment="{name}"}} 16777216'):
                expect(code == 200 and line in text.splitlines(), line)
            expect("Clients: 1" in ask(metrics, "/metrics/summary")[1], "the summary")
            found = json.loads(ask(metrics, "/health")[1])
            expect((found["status"], found["role"], found["service_ready"]) ==
                   ("ok", "leader", True), str(found))
            expect(ask(metrics, "/role") == (200, "leader"), "the role")
            expect(ask(client, "/role") == (200, "client"), "a client's role")
            expect(json.loads(ask(metrics, "/leader")[1])["leader_address"] == f"127.0.0.1:{rpc}",
                   "who")
            expect(ask(metrics, "/ha_status") == (200, "serving"), "ha")
            expect(json.loads(ask(metrics, "/kv_events/status")[1])["enabled"] is False, "events")
            expect(ask(client, "/health") == (200, "OK"), "a client's health")
            expect("yuebing_node" in ask(client, "/metrics")[1], "a client's metrics")
            expect(json.loads(ask(metrics, "/healthz")[1])["auth"] == "open", "open")
            expect(ask(metrics, "/role", "POST")[0] == 405, "a wrong method")
            expect(ask(metrics, "/api/v1/remove_all", "POST", Origin="http://evil")[0] == 403,
                   "a page in a browser")
            with socket.socket(socket.AF_UNIX) as unix:
                unix.connect(f"\0mooncake_client_{node}.sock")
                found = json.loads(unix.makefile().readline())
            expect(found == {"directory": f"127.0.0.1:{rpc}", "node": name, "tenant": "default"},
                   str(found))
            code, text = ask(metrics, "/api/v1/remove_all?force=true", "POST")
            expect(code == 200 and json.loads(text)["removed_count"] == 1, text)
            until(lambda: ask(metrics, "/get_all_keys")[1] == "", "no key")
        until(lambda: ask(metrics, "/get_all_segments")[1] == "", "the segment is gone")
    expect(master.code == 0, master.err)
    once = [line for line in master.err.splitlines() if "without effect here" in line]
    expect(len(once) == 1 and "--enable_oplog" in once[0] and "--v" in once[0] and
           "--eviction_high_watermark_ratio" in once[0] and "client_ttl" not in once[0], str(once))


@case("the metadata server answers as engines expect")
def _():
    port = free_port()
    with Command("mooncake_http_metadata_server", "--port", str(port), "--host", "127.0.0.1") as it:
        until(lambda: answers(port, "/health"), "it is there")
        where = "/metadata?key=mooncake%2Frpc_meta%2Fa"
        expect(ask(port, where) == (404, "metadata not found"), "nothing yet")
        expect(ask(port, where, "PUT", b'{"rpc_port":1}') == (200, "metadata updated"), "kept")
        code, _ = ask(port, where, "PUT", b'{"rpc_port":2}')
        expect(code == 400, "an address is not replaced")
        expect(ask(port, where) == (200, '{"rpc_port":1}'), "the first")
        expect(ask(port, where, "DELETE") == (200, "metadata deleted"), "deleted")
        expect(ask(port, where, "DELETE")[0] == 404, "it was deleted")
        expect(ask(port, "/metadata") == (400, "metadata key is required"), "no key")
        expect(ask(port, "/metadata?key=%20%20")[0] == 400, "blanks")
        expect(ask(port, where, "POST", b"")[0] == 405, "a wrong method")
        expect(ask(port, "/metadata?key=x", "PUT", b"x" * 1100000)[0] == 413, "too long a body")
        expect(ask(port, "/get_all_segments")[0] == 404, "it is no master")
    expect(it.code == 0 and it.err.count("no secret") == 1, it.err)


@case("what is not a flag, or not a value of one, refuses with the remedy")
def _():
    text = refused("mooncake_master", "--metric_port=9003")
    expect("did you mean --metrics_port?" in text, text)
    text = refused("mooncake_master", "--metrics_port", "many")
    expect("a number" in text, text)
    text = refused("mooncake_master", "--enable_ha=perhaps")
    expect("true or false" in text, text)
    expect("needs a value" in refused("mooncake_master", "--port"), "no value")
    expect("unexpected" in refused("mooncake_master", "50051"), "no flag")
    text = refused("mooncake_client", "--global_segment_size=4 XB")
    expect("global_segment_size" in text, text)
    refused("mooncake_client", "--metrics_port=1")  # The master's, not the client's.
    refused("mooncake_http_metadata_server", "--ports=1")


@case("every flag of the known commands is taken")
def _():
    old = ("--kv_events_model_name=m", "--kv_events_tenant_id=t", "--kv_events_lora_name=l",
           "--kv_events_additional_salt=s", "--kv_events_block_size=16", "--kv_events_dp_rank=0",
           "--snapshot_payload_store_type=s3", "--snapshot_payload_backend_type=s3",
           "--snapshot_catalog_backend_type=redis", "--snapshot_catalog_backend_connstring=c")
    both = ("--vmodule=a=1", "--nolog_prefix", "--logbufsecs=0", "--log_link=x", "--undefok=x",
            "--use_mmap_arena_allocator", "--mmap_arena_pool_size=1", "--stop_logging_if_full_disk")
    rpc, metrics, node = free_port(), free_port(), free_port()
    with folder() as path:
        with open(path + "/flags", "w", encoding="ascii") as file:
            file.write(f"mooncake_master\n# ports\n  --metrics_port={metrics} \n-rpc_port={rpc}\n")
        with Command("mooncake_master", "--rpc_port=1", f"--flagfile={path}/flags", "--v=1",
                     "--rpc_address=127.0.0.1", *old, *both) as master:
            until(lambda: answers(metrics, "/health"), "the master is where the file says")
            with Command("mooncake_client", f"--port={node}", "--host=127.0.0.1",
                         f"--master_server_address=127.0.0.1:{rpc}", "--tenant_id=team",
                         "--global_segment_size=16MB", *both) as client:
                until(lambda: ask(metrics, "/get_all_segments")[1] != "", "the segment")
                with socket.socket(socket.AF_UNIX) as unix:
                    unix.connect(f"\0mooncake_client_{node}.sock")
                    expect(json.loads(unix.makefile().readline())["tenant"] == "team", "whose")
        expect(client.code == 0 and "http at" not in client.out, "no port unless it is asked for")
        expect(master.code == 0, master.err)
        refused("mooncake_master", f"--flagfile={path}/none")
        with open(path + "/flags", "w", encoding="ascii") as file:
            file.write("--no_such_flag=1\n")
        refused("mooncake_master", f"--flagfile={path}/flags")
    port = free_port()
    with Command("mooncake_http_metadata_server", f"--port={port}", "--log-level", "DEBUG"):
        until(lambda: answers(port, "/health"), "it is there")


@case("a file of flags counts less than the command line")
def _():
    with folder() as path:
        rpc, metrics, other = free_port(), free_port(), free_port()
        with open(path + "/master.yaml", "w", encoding="ascii") as file:
            file.write(f"# of a chart\nrpc_port: {rpc}\nmetrics_port: \"{other}\"  # later\n"
                       "rpc_address: 127.0.0.1\nclient_live_ttl_sec: 7\nof_a_newer_one: 1\n")
        with Command("mooncake_master", f"--config_path={path}/master.yaml",
                     f"--metrics_port={metrics}") as master:
            until(lambda: answers(metrics, "/health"), "the master is there")
            expect(json.loads(ask(metrics, "/leader")[1])["leader_address"] ==
                   f"127.0.0.1:{rpc}", "where")
        expect("of_a_newer_one" in master.err and "client_live" not in master.err, master.err)


@case("a secret is asked for where there is one, and none is not allowed where it is required")
def _():
    for name in ("mooncake_master", "mooncake_client", "mooncake_http_metadata_server"):
        text = refused(name, YUEBING_REQUIRE_AUTH="1")
        expect("secret" in text, text)
    with folder() as path:
        mine, theirs = new_secret(path + "/mine"), new_secret(path + "/theirs")
        rpc, metrics, node = free_port(), free_port(), free_port()
        with Command("mooncake_master", f"--port={rpc}", f"--metrics_port={metrics}",
                     YUEBING_SECRET_FILE=mine, YUEBING_REQUIRE_AUTH="1"):
            until(lambda: answers(metrics, "/health"), "the master is there")
            expect(json.loads(ask(metrics, "/healthz")[1])["auth"] == "secret", "a secret")
            expect("yuebing_auth_open 0" in ask(metrics, "/metrics")[1].splitlines(), "metric")
            expect(ask(metrics, "/api/v1/remove_all", "POST")[0] == 403, "who may change")
            words = (f"--port={node}", f"--master_server_address=127.0.0.1:{rpc}",
                     "--host=127.0.0.1", "--global_segment_size=16MB", "--noenable_http_server")
            with Command("mooncake_client", *words, YUEBING_SECRET_FILE=theirs):
                metric = 'yuebing_net_refused_total{reason="unknown_key"}'
                until(lambda: any(line.startswith(metric) and not line.endswith(" 0") for line in
                                  ask(metrics, "/metrics")[1].splitlines()), "it was refused")
                expect(ask(metrics, "/get_all_segments")[1] == "", "a stranger's segment")
            with Command("mooncake_client", *words, YUEBING_SECRET_FILE=mine):
                until(lambda: ask(metrics, "/get_all_segments")[1] == f"127.0.0.1:{node}\n", "ours")


@case("an original client is told, in one line of the log, what to do")
def _():
    rpc, metrics = free_port(), free_port()
    with Command("mooncake_master", f"--port={rpc}", f"--metrics_port={metrics}",
                 "--rpc_address=127.0.0.1") as master:
        until(lambda: answers(metrics, "/health"), "the master is there")
        with contextlib.ExitStack() as stack:
            strangers = [stack.enter_context(socket.create_connection(("127.0.0.1", rpc),
                                                                      timeout=DEADLINE_S))
                         for _ in range(40)]
            for stranger in strangers:
                stranger.sendall(bytes([21, 0, 0, 0]) + bytes(16))
            for stranger in strangers:
                with contextlib.suppress(ConnectionError):
                    expect(stranger.recv(64) == b"", "nothing that it could mistake")
    told = [line for line in master.err.splitlines() if "original mooncake package" in line]
    expect(1 <= len(told) < 40 and "pip install yuebing" in told[0], f"{len(told)}")


main()
