# SPDX-License-Identifier: Apache-2.0
"""What a client is set up with, read from a JSON file or from the environment."""
import json
import os
from dataclasses import dataclass

__all__ = ["DEFAULT_GLOBAL_SEGMENT_SIZE", "DEFAULT_LOCAL_BUFFER_SIZE", "MooncakeConfig"]

DEFAULT_GLOBAL_SEGMENT_SIZE = 3355443200
DEFAULT_LOCAL_BUFFER_SIZE = 1073741824

_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def parse_size(value):
    """Bytes: an int, or text such as "16MB"; ValueError names what cannot be read."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(f"a size is a number of bytes or text such as '16MB', not {value!r}")
    if isinstance(value, int):
        return value
    text = value.strip().upper()
    digits = text.rstrip("BKMGT").strip()
    unit = text[len(digits):].strip()
    try:
        return int(float(digits) * _UNITS[unit]) if "." in digits else int(digits) * _UNITS[unit]
    except (KeyError, ValueError):
        raise ValueError(
            f"a size is a number of bytes or text such as '16MB', not {value!r}") from None


def parse_flag(value):
    """A bool, or text for one; ValueError names what cannot be read."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off", ""):
        return False
    raise ValueError(f"expected true or false, not {value!r}")


@dataclass
class MooncakeConfig:
    local_hostname: str
    metadata_server: str
    global_segment_size: int
    local_buffer_size: int
    protocol: str
    device_name: str
    master_server_address: str
    enable_ssd_offload: bool = False
    ssd_offload_path: str = ""
    tenant_id: str = "default"
    enable_client_http_server: bool = False
    client_http_port: int = 9300

    @staticmethod
    def from_file(file_path: str) -> "MooncakeConfig":
        """Read a JSON file; ValueError names a key that is missing."""
        with open(file_path, encoding="utf-8") as file:
            config = json.load(file)
        for key in ("local_hostname", "metadata_server", "master_server_address"):
            if key not in config:
                raise ValueError(f"{file_path}: '{key}' is missing")
        return MooncakeConfig(
            local_hostname=config["local_hostname"],
            metadata_server=config["metadata_server"],
            global_segment_size=parse_size(
                config.get("global_segment_size", DEFAULT_GLOBAL_SEGMENT_SIZE)),
            local_buffer_size=parse_size(
                config.get("local_buffer_size", DEFAULT_LOCAL_BUFFER_SIZE)),
            protocol=config.get("protocol", "tcp"),
            device_name=config.get("device_name", ""),
            master_server_address=config["master_server_address"],
            enable_ssd_offload=parse_flag(config.get("enable_ssd_offload", False)),
            ssd_offload_path=config.get("ssd_offload_path", ""),
            tenant_id=config.get("tenant_id", "default"),
            enable_client_http_server=parse_flag(config.get("enable_client_http_server", False)),
            client_http_port=int(config.get("client_http_port", 9300)),
        )

    @staticmethod
    def load_from_env() -> "MooncakeConfig":
        """The file that MOONCAKE_CONFIG_PATH names, or the variables MOONCAKE_MASTER ..."""
        path = os.getenv("MOONCAKE_CONFIG_PATH")
        if path:
            return MooncakeConfig.from_file(path)
        master = os.getenv("MOONCAKE_MASTER")
        if not master:
            raise ValueError("neither MOONCAKE_CONFIG_PATH nor MOONCAKE_MASTER is set")
        return MooncakeConfig(
            local_hostname=os.getenv("MOONCAKE_LOCAL_HOSTNAME", "localhost"),
            metadata_server=os.getenv("MOONCAKE_TE_META_DATA_SERVER", "P2PHANDSHAKE"),
            global_segment_size=parse_size(
                os.getenv("MOONCAKE_GLOBAL_SEGMENT_SIZE", str(DEFAULT_GLOBAL_SEGMENT_SIZE))),
            local_buffer_size=parse_size(
                os.getenv("MOONCAKE_LOCAL_BUFFER_SIZE", str(DEFAULT_LOCAL_BUFFER_SIZE))),
            protocol=os.getenv("MOONCAKE_PROTOCOL", "tcp"),
            device_name=os.getenv("MOONCAKE_DEVICE", ""),
            master_server_address=master,
            enable_ssd_offload=parse_flag(os.getenv("MOONCAKE_OFFLOAD_ENABLED", "")),
            ssd_offload_path=os.getenv("MOONCAKE_OFFLOAD_FILE_STORAGE_PATH", ""),
            tenant_id=os.getenv("MOONCAKE_TENANT_ID", "default"),
            enable_client_http_server=parse_flag(
                os.getenv("MOONCAKE_ENABLE_CLIENT_HTTP_SERVER", "")),
            client_http_port=int(os.getenv("MOONCAKE_CLIENT_HTTP_PORT", "9300")),
        )
