"""Tables of measured runs: one CSV row read, checked cell by cell, into one record."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from optplan.models.errors import Fault, InputError
from optplan.source import read_text

LARGEST = 2**26
"""Bytes that a table may have."""

MOST_ROWS = 200_000
"""Rows that a table may have."""

MOST_FAULTS = 100
"""Faults that are told at once."""

FLAGS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}

OUTCOMES = ("ok", "oom", "killed", "hung", "failed")
RECOMPUTES = ("none", "selective", "full")


@dataclass(frozen=True)
class Run:
    """
    One measured run, cell by cell; None where a cell is empty.

    ``place`` is where it stands, ``file`` the table it is from. Sizes are as the header of the
    table says them: GB, GB/s, TFLOP/s, seconds, sequences.
    """

    place: str
    file: str
    source_id: str = ""
    source: str = ""
    row_note: str = ""
    model_name: str = ""
    num_layers: int | None = None
    hidden_size: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    ffn_hidden_size: int | None = None
    gated_mlp: bool | None = None
    vocab_size: int | None = None
    seq_len: int | None = None
    num_experts: int | None = None
    top_k: int | None = None
    moe_ffn: int | None = None
    params_b: float | None = None
    accelerator: str = ""
    num_devices: int | None = None
    devices_per_node: int | None = None
    peak_bf16_tflops: float | None = None
    hbm_gb: float | None = None
    intra_bw_gbs: float | None = None
    inter_bw_gbs: float | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    cp: int | None = None
    ep: int | None = None
    vpp: int | None = None
    seq_parallel: bool | None = None
    zero_stage: int | None = None
    recompute: str = ""
    micro_batch: int | None = None
    global_batch: int | None = None
    precision: str = ""
    framework: str = ""
    flash_attention: bool | None = None
    step_time_s: float | None = None
    tokens_per_s_per_device: float | None = None
    model_tflops_per_device: float | None = None
    hw_tflops_per_device: float | None = None
    mfu: float | None = None
    peak_mem_gb: float | None = None
    outcome: str = ""

    def says(self, *words: str) -> bool:
        """Tell whether the note of the row holds one of the words, whatever their case."""
        note = self.row_note.lower()
        return any(word.lower() in note for word in words)


COLUMNS = tuple(f.name for f in fields(Run) if f.name not in ("place", "file"))
"""Columns that are read; every other one is ignored."""

NEEDED = ("num_layers", "hidden_size", "seq_len", "accelerator", "num_devices")
"""Columns without which a file is no table of runs."""

_KINDS = {f.name: str(f.type) for f in fields(Run)}


def read_runs(paths: Iterable[str | Path]) -> list[Run]:
    """
    Read tables of measured runs.

    Parameters
    ----------
    paths
        CSV files with a header; cells may be empty, unknown columns are ignored.

    Returns
    -------
    list of Run
        Every row of every file, in order. The file's name without its ending is ``file``.

    Raises
    ------
    InputError
        A file cannot be read or is no table of runs, or a cell holds no value of its kind; carries
        every fault.
    """
    faults: list[Fault] = []
    runs: list[Run] = []
    every = [Path(path) for path in paths]
    stems = Counter(path.stem for path in every)
    for path in every:
        if every.count(path) > 1:
            problem, remedy = "this table is named more than once", "name it once"
            raise InputError([Fault(str(path), "", problem, remedy)])
        text = read_text(path, _shown(str(path)), faults, LARGEST)
        if text is not None:
            # Tables of one name in several folders are told apart by their folders.
            alone = stems[path.stem] == 1
            file = _shown(path.stem if alone else str(path.with_suffix("")))
            runs += _rows(path, file, text, faults)
    if len(faults) > MOST_FAULTS:
        more = Fault("", "", f"and {len(faults) - MOST_FAULTS:,} faults more", "mend these first")
        raise InputError([*faults[:MOST_FAULTS], more])
    if faults:
        raise InputError(faults)
    return runs


def _shown(name: str) -> str:
    """Write the name of a file that may be no text."""
    return name.encode("utf-8", "replace").decode("utf-8")


def _rows(path: Path, file: str, text: str, faults: list[Fault]) -> list[Run]:
    """Read the rows of one table."""
    if "\0" in text:
        problem, remedy = "the file holds a NUL byte", "save it as plain CSV"
        faults.append(Fault(path.name, "", problem, remedy))
        return []
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    runs: list[Run] = []
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        if not _sound_header(path, header, faults):
            return []
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(runs) >= MOST_ROWS:
                problem = f"more than {MOST_ROWS} rows"
                faults.append(Fault(path.name, "", problem, "split the table"))
                break
            run = _run(path, file, reader.line_num, header, cells, faults)
            if run is not None:
                runs.append(run)
    except csv.Error as error:
        place = f"{path.name}:{reader.line_num}"
        faults.append(Fault(place, "", f"cannot be read as CSV ({error})", 'quote cells by ""'))
        return []
    if not runs and not faults:
        remedy = "add a row for every run"
        faults.append(Fault(path.name, "", "the table holds no runs", remedy))
    return runs


def _sound_header(path: Path, header: list[str], faults: list[Fault]) -> bool:
    """Tell whether a header is that of a table of runs."""
    missing = [name for name in NEEDED if name not in header]
    twice = sorted({name for name in header if name in COLUMNS and header.count(name) > 1})
    if missing:
        word = "columns" if len(missing) > 1 else "column"
        problem = f"this is no table of measured runs: without {word} {', '.join(missing)}"
        remedy = "start the file with a line of column names, as the README shows it"
        if len(header) == 1 and any(mark in header[0] for mark in ";\t"):
            remedy = "put commas between the cells"
        faults.append(Fault(f"{path.name}:1", "", problem, remedy))
    if twice:
        problem = f"column {', '.join(twice)} stands twice"
        faults.append(Fault(f"{path.name}:1", "", problem, "keep one of them"))
    return not (missing or twice)


def _run(
    path: Path, file: str, line: int, header: list[str], cells: list[str], faults: list[Fault]
) -> Run | None:
    """Read one row."""
    place = f"{_shown(path.name)}:{line}"
    if len(cells) != len(header):
        problem = f"{len(cells)} cells under {len(header)} columns"
        faults.append(Fault(place, "", problem, "give every column a cell, empty if unknown"))
        return None
    values: dict[str, object] = {}
    for name, cell in zip(header, cells, strict=True):
        if name not in COLUMNS or not cell.strip():
            continue
        value, remedy = _value(name, cell.strip())
        if remedy:
            shown = cell.strip()[:40]
            faults.append(Fault(place, name, f"'{shown}' is not right here", remedy))
        else:
            values[name] = value
    return Run(place=place, file=file, **values)  # type: ignore[arg-type]


def _value(name: str, cell: str) -> tuple[object, str]:
    """Read one cell, or say what would be right."""
    kind = _KINDS[name]
    if kind.startswith("bool"):
        found = FLAGS.get(cell.lower())
        return found, "" if found is not None else "write true or false, or leave it empty"
    if kind.startswith("int"):
        return _whole(cell, 0 if name in ("zero_stage", "num_experts", "top_k") else 1)
    if kind.startswith("float"):
        return _number(name, cell)
    if name == "outcome" and cell not in OUTCOMES:
        return None, f"write one of {', '.join(OUTCOMES)}, or leave it empty"
    if name == "recompute" and cell not in RECOMPUTES:
        return None, f"write one of {', '.join(RECOMPUTES)}, or leave it empty"
    return cell, ""


def _whole(cell: str, least: int) -> tuple[int | None, str]:
    """Read a whole number, which may be written as 8 or 8.0."""
    remedy = f"write a whole number of at least {least}, or leave it empty"
    try:
        number = float(cell)
    except ValueError:
        return None, remedy
    if not _plain(cell) or not least <= number < 2**31 or number != int(number):
        return None, remedy
    return int(number), ""


def _plain(cell: str) -> bool:
    """Tell whether a number is written the plain way: no underscores, no digits of elsewhere."""
    return cell.isascii() and "_" not in cell


def _number(name: str, cell: str) -> tuple[float | None, str]:
    """Read a positive number."""
    least, most = 1e-12, 1.0 if name == "mfu" else 1e18
    remedy = "write a number above 0, or leave it empty"
    if name == "mfu":
        remedy = "write a share of the peak, such as 0.42, or leave it empty"
    try:
        number = float(cell)
    except ValueError:
        return None, remedy
    if not _plain(cell) or not least <= number <= most:
        return None, remedy
    return number, ""
