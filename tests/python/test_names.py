# SPDX-License-Identifier: Apache-2.0
"""docs/python-names.md against the package: what it says of each name of the known one holds."""
import importlib
import inspect
import pathlib
import re

import mooncake.engine
import mooncake.store
import pytest

TABLE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python-names.md"
# Names of ours that the known package does not have.
OURS = {
    "BufferLease.view", "CoroRPCInterface.listen_address", "MooncakeDistributedStore.lookups",
    "RegisteredBufferLease.view", "RpcInterface.listen_address", "SharedSegment.close",
}
# Members of enums are checked by their values elsewhere; these are classes with nothing to call.
ENUMS = {"ObjectDataType", "SoftPinAction", "ReplicaStatus", "TaskStatus", "TaskType",
         "TransferOpcode"}
ANSWERS = {  # What the rows that say "answers" are called with.
    "MooncakeDistributedStore.get_tensor_into_cuda": ("k", None),
    "MooncakeDistributedStore.batch_get_tensor_into_cuda": (["k"], [None]),
    "MooncakeDistributedNoFRegister.real_register": ("nqn", 1, "::1", 4420, 0, 1, "::1:50051"),
    "MooncakeDistributedNoFRegister.real_unregister_by_endpoint": (
        "nqn", 1, "::1", 4420, "::1:50051"),
    "MooncakeDistributedStore.init_all": ("tcp", "", 0),
    "MooncakeDistributedStore.unmount_local_disk_segment": (),
    "MooncakeDistributedStore.get_offload_rpc_read_count": (),
    "MooncakeDistributedStore._get_pyclient_capsule": (),
    "_get_pyclient_from_wrapper": (None,),
    "TransferEngine.warmup_efa_segment": ("segment",),
    "SharedSegment.device_addr": (),
}


def rows():
    module = None
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        head = re.fullmatch(r"## `(mooncake\.\w+)`", line)
        module = head[1] if head else module
        row = re.fullmatch(r"\| `([\w.]+)` \| (?:`([^`]*)`)? ?\| (.+) \|", line)
        if row:
            yield pytest.param(module, row[1], row[2] or "", row[3], id=f"{module}.{row[1]}")


ROWS = list(rows())


def find(module, name):
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def parameters(callable_, name):
    """As the table writes them."""
    try:
        given = list(inspect.signature(callable_).parameters.values())
        given = given[1:] if given and given[0].name == "self" else given
        if any(one.kind is one.VAR_POSITIONAL for one in given):
            return "*"
        return ", ".join(
            "_" if one.kind is one.POSITIONAL_ONLY else
            one.name + ("" if one.default is one.empty else "=") for one in given)
    except ValueError:  # Of the extension module: its text begins with it.
        text = re.match(re.escape(name) + r"\((.*?)\)(?:\n|:|$)", callable_.__doc__ or "", re.S)
        assert text, f"{name} does not say what it takes: {callable_.__doc__}"
        words = [word.strip() for word in re.sub(r"\([^()]*\)", "", text[1]).split(",")]
        if any(word.startswith("*") for word in words):
            return "*"
        return ", ".join(re.sub(r"=.*", "=", word) for word in words if word)


@pytest.mark.parametrize("module, name, takes, state", ROWS)
def test_what_the_table_says_of_a_name_holds(module, name, takes, state):
    if state.startswith("no:"):
        with pytest.raises(AttributeError):
            find(module, name)
        return
    assert state.startswith(("yes", "answers "))
    if name.startswith("ReplicateConfig."):
        assert hasattr(mooncake.store.ReplicateConfig(), name.split(".")[1])
        return
    try:
        found = find(module, name)
    except AttributeError:  # It is set when one is made.
        owner, _, leaf = name.rpartition(".")
        assert re.search(rf"self\.{leaf} = ", inspect.getsource(find(module, owner)))
        return
    if inspect.isclass(found) or not callable(found):
        assert takes == ""
        return
    leaf = name.split(".")[-1]
    mine = parameters(found, leaf)
    if takes and set(takes) <= set("_, "):
        assert mine.count(",") == takes.count(","), mine
    else:
        assert mine == takes


@pytest.mark.parametrize("module, name, takes, state",
                         [row for row in ROWS if row.values[3].startswith("answers ")])
def test_a_row_that_names_an_answer_is_right(store, module, name, takes, state):
    owner = name.rpartition(".")[0]
    made = {
        "": lambda: importlib.import_module(module),
        "MooncakeDistributedNoFRegister": mooncake.store.MooncakeDistributedNoFRegister,
        "MooncakeDistributedStore": lambda: store,
        "TransferEngine": mooncake.engine.TransferEngine,
        "SharedSegment": lambda: mooncake.engine.SharedSegment.create("s", 1, 1, 0)[0],
    }[owner]()
    got = getattr(made, name.split(".")[-1])(*ANSWERS[name])
    told = re.match(r"answers (-?\d+|None)( each)?", state)
    want = None if told[1] == "None" else int(told[1])
    assert got == ([want] if told[2] else want)


def test_there_is_no_name_without_a_row():
    told = {row.values[1] for row in ROWS} | OURS
    for module in (mooncake.store, mooncake.engine):
        for name in module.__all__:
            found = getattr(module, name)
            if not inspect.isclass(found):
                assert name in told or isinstance(found, (bool, int)), name
                continue
            assert name in told
            for leaf in vars(found):
                if not leaf.startswith("_") and name not in ENUMS:
                    assert f"{name}.{leaf}" in told, f"{name}.{leaf}"
    for leaf in dir(mooncake.store.MooncakeDistributedStore):
        assert leaf.startswith("_") or f"MooncakeDistributedStore.{leaf}" in told, leaf
