"""The figures of docs/performance.md: every benchmark run, and their tables as Markdown.

    python scripts/benchmarks/performance.py DIR [--tables steps local] [--again step,event]

Each benchmark's result is kept in DIR as NAME.json, and not taken again where it is there, unless
--again names it. The tables are printed. Let the computer do nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from cec_mpi.bench.figures import Figure, Result

EC2 = (
    "--trace ec2 --hold 1 --iterations 60 --recovery 10 --only heterogeneous,cyclic --speeds "
    + ",".join(["1,2"] * 10)
)
RUNS = {
    "step": "step",
    "step-2": "step --ranks 2 --recovery 1",
    "long": "step --rows 24000 --columns 1000 --steps 40",
    "long-3": "step --rows 24000 --columns 1000 --steps 40 --ranks 3 --recovery 2",
    "local": "local",
    "kernel-float64": "kernel",
    "kernel-float32": "kernel --dtype float32",
    "block-float64": "block",
    "block-float32": "block --dtype float32",
    "adjoint-float64": "adjoint",
    "adjoint-float32": "adjoint --dtype float32",
    "decode": "decode",
    "event": "event",
    "event-400": "event --machines 400",
    "plan": "plan",
    "plan-10000": "plan --machines 10000",
    "start": "start",
    "encode": "encode",
    "verify": "verify",
    "scale": "scale",
    "makespan": "makespan",
    "league": "league",
    "ec2-0": f"league {EC2}",
    "ec2-2": f"league {EC2} --stragglers 2",
}
STEPS = {
    "step": "600 x 600, 7 ranks",
    "step-2": "600 x 600, 2 ranks",
    "long": "24,000 x 1,000, 7 ranks",
    "long-3": "24,000 x 1,000, 3 ranks",
}
VECTORS = (2, 4, 8, 16, 32)
Found = dict[str, dict[tuple[str, str, str], Figure]]


def main() -> int:
    tables = {
        "steps": ("A step", steps, tuple(STEPS)),
        "local": ("A step without a wire", local, ("local",)),
        "kernels": ("A machine's product with one vector", kernels, named("kernel")),
        "blocks": (
            "A machine's product with several vectors",
            blocks,
            named("block") + named("adjoint"),
        ),
        "decoding": ("Decoding", decoders, ("decode",)),
        "events": ("An elastic event", events, named("event")),
        "plans": ("Plans", plans, named("plan")),
        "others": ("Starts and stores", others, ("start", "encode", "verify")),
        "ranks": ("Many ranks", many_ranks, ("scale",)),
        "slower": ("Machines that really are slower", slower, ("makespan",)),
        "league": ("The league", league, ("league", "ec2-0", "ec2-2")),
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--tables", nargs="+", default=list(tables), choices=tables)
    parser.add_argument("--again", default="", help="names of results, with commas")
    chosen = parser.parse_args()
    chosen.directory.mkdir(exist_ok=True)
    results: dict[str, Result] = {}
    for which in chosen.tables:
        for name in tables[which][2]:
            path = chosen.directory / f"{name}.json"
            if not path.exists() or name in chosen.again.split(","):
                print(f"cec-mpi bench {RUNS[name]}", file=sys.stderr, flush=True)
                command = [sys.executable, "-m", "cec_mpi", "bench", *RUNS[name].split(), "--json"]
                done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
                path.write_bytes(done.stdout)
            results[name] = Result.from_json(path.read_bytes())
    found = {name: {each.key: each for each in one.figures} for name, one in results.items()}
    for one in [*results.values()][:1]:
        about = ", ".join(f"{name} {value}" for name, value in one.machine.items())
        print(f"{about}; {one.date[:10]}.\n")
    for which in chosen.tables:
        title, make, _ = tables[which]
        print(f"### {title}\n\n" + "\n".join(make(found)) + "\n")
    return 0


def named(word: str) -> tuple[str, ...]:
    """Runs whose names begin with a word."""
    return tuple(name for name in RUNS if name.partition("-")[0] == word)


def shown(figure: Figure | None) -> str:
    """A ratio with its quartiles."""
    if figure is None:
        return ""
    return f"{figure.value:.2f} ({figure.low:.2f} to {figure.high:.2f})"


def ratio(figure: Figure | None) -> str:
    return "" if figure is None else f"{figure.value:.2f}"


def ms(figure: Figure | None) -> str:
    return "" if figure is None else f"{1e3 * figure.value:.2f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> list[str]:
    """Markdown; all columns but the first ones are numbers."""
    rule = "|".join(["", *["---"] * texts, *["---:"] * (len(head) - texts), ""])
    first, *others = (f"| {' | '.join(row)} |" for row in (head, *rows))
    return [first, rule, *others]


def steps(found: Found) -> list[str]:
    rows = [
        (name, over, *(shown(found[run].get((name, peer, "ratio"))) for run in STEPS))
        for name, peer, over in (
            ("X w", "bare Bcast, products, Gatherv", "a blocking Bcast, products, Gatherv"),
            ("X w", "the published program", "the published program"),
            ("X'v", "X w", "X w"),
            ("X W, 8 columns", "X w", "X w"),
            ("X'V, 8 columns", "X'v", "X'v"),
        )
    ]
    times = ("X w, in ms", "", *(ms(found[run].get(("X w", "", "s"))) for run in STEPS))
    return table(["", "over", *STEPS.values()], [*rows, times], 2)


def local(found: Found) -> list[str]:
    names = ("X w", "X'v", "X w, recorded", "X w, recorded, speeds learned")
    figures, peer = found["local"], "its products alone"
    return [
        "All of six machines in one process, 600 x 600.\n",
        *table(
            ["", "over its products alone", "ms"],
            [
                (name, shown(figures.get((name, peer, "ratio"))), ms(figures.get((name, "", "s"))))
                for name in names
            ],
        ),
    ]


def kernels(found: Found) -> list[str]:
    lines = [
        "Speed over that of the best of NumPy's routines, and in brackets over that of a plain "
        "read; shards of 64 MiB.\n"
    ]
    columns = (4, 16, 60, 250, 1_000, 2_500, 20_000, 200_000)
    for dtype, kinds in (
        ("float64", ("", ", 50 intervals")),
        ("float32", ("", ", 50 intervals", ", in double")),
    ):
        figures = found[f"kernel-{dtype}"]

        def cell(name: str, figures: dict[tuple[str, str, str], Figure] = figures) -> str:
            best = figures.get((name, "the best of NumPy", "ratio"))
            read = figures.get((name, "a plain read", "ratio"))
            return f"{ratio(best)} ({ratio(read)})" if best else ""

        rows = [
            (f"{product}{kind}", *(cell(f"{product}, r = {each}{kind}") for each in columns))
            for kind in kinds
            for product in ("X w", "X'v")
        ]
        lines += [*table([dtype, *(f"{each:,} columns" for each in columns)], rows), ""]
    return lines[:-1]


def blocks(found: Found) -> list[str]:
    rows = []
    for dtype in ("float64", "float32"):
        for run, product in (("block", "X W"), ("adjoint", "X'V")):
            figures = found[f"{run}-{dtype}"]
            for columns in (100, 600, 1_250, 2_500, 10_000):
                cells = []
                for k in VECTORS:
                    name = f"{product}, {k} vectors, r = {columns}"
                    one = figures.get((name, "one vector", "ratio"))
                    dot = figures.get((name, "np.dot with one vector", "ratio"))
                    cells.append(f"{ratio(one)} ({ratio(dot)})")
                if any(cell != " ()" for cell in cells):
                    rows.append((f"{product}, {dtype}, {columns:,} columns", *cells))
    head = ["", *(f"{k} vectors" for k in VECTORS)]
    about = "Over the time of one vector, and in brackets over that of `np.dot` with one.\n"
    return [about, *table(head, rows)]


def decoders(found: Found) -> list[str]:
    figures, kinds = found["decode"], ("X w", "X w of float32", "X'v")
    which = dict.fromkeys(name.partition(", ")[2] for name, _, _ in figures)
    rows = [
        (each, *(shown(figures.get((f"{kind}, {each}", "np.copyto", "ratio"))) for kind in kinds))
        for each in which
    ]
    about = "Speed over that of `np.copyto` of as many bytes.\n"
    return [about, *table(["", *kinds], rows)]


def events(found: Found) -> list[str]:
    names = ("X w, set seen before", "X w, new set", "X'v, set seen before", "X'v, new set")
    both = [found[run] for run in ("event", "event-400")]
    rows = [
        (name, *(shown(each.get((name, "no event", "ratio"))) for each in both)) for name in names
    ]
    about = "L = 10, 4,000 x 400, one process, three machines away: over a step without an event.\n"
    return [about, *table(["", "N = 100", "N = 400"], rows)]


def plans(found: Found) -> list[str]:
    lines = ["In ms, and in brackets over a plan of the cyclic scheme, where that was made.\n"]
    for run, machines in (("plan", 1_000), ("plan-10000", 10_000)):
        figures = found[run]
        recoveries = sorted(
            {int(name.split(",")[0].removeprefix("L = ")) for name, _, _ in figures}
        )

        def cell(name: str, figures: dict[tuple[str, str, str], Figure] = figures) -> str:
            over = figures.get((name, "the cyclic plan", "ratio"))
            return ms(figures.get((name, "", "s"))) + (f" ({ratio(over)})" if over else "")

        rows = [
            (kind, *(cell(f"L = {each}, {kind} speeds") for each in recoveries))
            for kind in ("uniform", "powers of 2", "equal")
        ]
        head = [f"{machines:,} machines", *(f"L = {each:,}" for each in recoveries)]
        lines += [*table(head, rows), ""]
    return lines[:-1]


def others(found: Found) -> list[str]:
    bare, slower, read = "a bare program", "the slower of both", "reading the same files"
    rows = [
        (name, over, shown(found[run].get((figure, peer, "ratio"))))
        for run, name, figure, peer, over in (
            ("start", "a run of one step, seconds", "run, seconds", bare, bare),
            ("start", "the same, CPU seconds", "run, CPU seconds", bare, bare),
            ("encode", "`encode`", "encode", slower, "the slower of writing as much and products"),
            ("verify", "`verify`", "verify", read, read),
        )
    ]
    return table(["", "over", "ratio"], rows, 2)


def many_ranks(found: Found) -> list[str]:
    figures = found["scale"]
    ranks = sorted({int(name.split()[0]) for name, over, _ in figures if over})
    over = [
        figures.get((f"{each} ranks, collectives", "a bare Bcast and Gatherv", "ratio"))
        for each in ranks
    ]
    rows = [("over the bare wire", *map(ratio, over))]
    for shape in ("small", "tall", "wide"):
        cells = []
        for each in ranks:
            of = f"{each} ranks, collectives, {shape} X"
            measured, model = figures.get((of, "", "s")), figures.get((f"{of}: model", "", "s"))
            cells.append(f"{ms(measured)} ({ms(model)})")
        rows.append((f"{shape} X", *cells))
    about = (
        "Steps that compute next to nothing, on two cores: ms, and in brackets by the model of "
        "`cec-mpi doctor`, fitted to these.\n"
    )
    return [about, *table(["", *(f"{each} ranks" for each in ranks)], rows)]


def slower(found: Found) -> list[str]:
    rows = [
        (name, shown(each))
        for (name, over, _), each in found["makespan"].items()
        if over == "the optimum in hindsight"
    ]
    return table(["", "over the optimum in hindsight"], rows)


def league(found: Found) -> list[str]:
    figures = found["league"]
    names = [name.removesuffix(", moved") for name, _, unit in figures if unit == "bytes"]
    rows = []
    for name in names:
        times = [figures.get((f"{name}, {kind}", "", "s")) for kind in ("in all", "at events")]
        moved = figures[f"{name}, moved", "", "bytes"].value / 1e6
        over = shown(figures.get((name, "heterogeneous", "ratio")))
        seconds = (f"{each.value:.2f}" if each else "" for each in times)
        rows.append((name, over, *seconds, f"{moved:,.0f}"))
    head = ["", "over `heterogeneous`", "seconds", "at events", "MB moved"]
    ec2 = [
        (f"`cyclic`, S = {each}", shown(found[f"ec2-{each}"]["cyclic", "heterogeneous", "ratio"]))
        for each in (0, 2)
    ]
    about = "\nN = 20, L = 10, the trace of the method's authors:\n"
    return [*table(head, rows), about, *table(["", "over `heterogeneous`"], ec2)]


if __name__ == "__main__":
    raise SystemExit(main())
