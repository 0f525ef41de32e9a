#!/usr/bin/env python3
"""Makes docs/results.md from the lines that `pelago sim --experiment` wrote.

    experiments/tables.py [RESULTS] [--out FILE] [--check]

A difference is 100 * (loss / loss of the row it is compared with - 1), seed by seed; given are the mean over the seeds both
rows have and its standard error. A bar holds when mean + 2 standard errors is at most the bar. A row with fewer seeds or
tokens than its experiment wants is marked, and its bar is not judged. With which row it is compared, its bar and the order of the
rows are those of the experiment's file as it is now, not as it was when the line was written. Standard library only; nothing here is
random. --check writes nothing: it is an error when FILE is not what would be written.
"""
import json
import math
import pathlib
import sys

SEEDS_WANTED = 5
TOKENS_WANTED = 20.0
ONE_SEED = {"large"}  # experiments that are asked for with one seed
SCOUTED_SHOWN = 6
RING_BATCH = 64  # sequences of a step of the other ring
FOLDER = pathlib.Path(__file__).parent

TITLES = {
    "learners": "Learners, AdamW inside",
    "muon": "Learners, Muon inside",
    "faults": "Learners killed",
    "unequal": "Unequal learners",
    "codecs": "Codecs",
    "bytes": "Bytes on the wire",
    "join": "Learners that come half-way",
    "domains": "Every learner another domain",
    "rules": "Merge rules",
    "large": "Learners, 5m",
    "sweep_outer": "Sweep: outer learning rate and momentum",
    "sweep_inner": "Sweep: inner learning rate, AdamW",
    "sweep_muon": "Sweep: inner learning rate, Muon",
    "sweep_batch": "Sweep: batch",
    "sweep_topk": "Sweep: top-k with a quarter of the batch",
    "sweep_slow": "Sweep: slow lines, and few merges on fast ones",
    "sweep_few_2": "Sweep: the outer rate where merges are few, 2 learners",
    "sweep_few_4": "Sweep: the outer rate where merges are few, 4 learners",
    "sweep_few_8": "Sweep: the outer rate where merges are few, 8 learners",
}


def read(path):
    """The last line of each (experiment, row, short, seed)."""
    runs = {}
    for text in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        try:
            run = json.loads(text)
            runs[run["experiment"], run["row"], run["short"], run["seed"]] = run
        except (ValueError, KeyError, TypeError):
            print(f"{path}: a line that is no run was left out", file=sys.stderr)
    return list(runs.values())


def file_of(experiment):
    """The keys of the experiment's file; {} where there is none. It is flat (docs/experiments.md): a key, a colon, a value."""
    path, keys = FOLDER / f"{experiment}.yaml", {}
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        key, colon, value = text.partition(": ")
        if colon and not text.startswith("#"):
            keys[key.strip()] = value.partition(" #")[0].strip()
    return keys


def names_of(experiment):
    """The rows of the experiment's file, in its order."""
    return [n.strip() for n in file_of(experiment).get("rows", "").strip("[]").split(",") if n.strip()]


def judged_by(experiment, name, run):
    """The row that it is compared with and its bar: those of the file, or of the line where there is no such row in it."""
    keys = file_of(experiment)
    if name not in names_of(experiment):
        return run.get("against"), run.get("bar")
    bar = keys.get(f"{name}/bar", keys.get("bar"))
    return keys.get(f"{name}/against", keys.get("against")), None if bar is None else float(bar)


def rows_of(runs, experiment, short):
    """Runs by row and seed, in the file's order. A row whose settings were changed counts with those of its newest run alone."""
    rows = {}
    for run in runs:
        if run["experiment"] == experiment and run["short"] == short:
            rows.setdefault(run["row"], []).append(run)
    names = [n for n in names_of(experiment) if n in rows] + [n for n in rows if n not in names_of(experiment)]
    return {n: {r["seed"]: r for r in rows[n] if r["key"] == rows[n][-1]["key"]} for n in names}


def mean_and_error(values):
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))


def differences(row, base):
    return [100 * (row[s]["eval_loss"] / base[s]["eval_loss"] - 1) for s in sorted(row) if s in base]


def tokens_a_parameter(run):
    return run["outcome"]["merged_tokens"] / run["outcome"]["params"]


def ring_bytes(run, batch):
    """What data-parallel training with as many learners would have moved, up and down, in bf16 by a ring, at this batch."""
    learners = run["config"]["settings"]["sync"]["learners"]
    seq = run["config"]["settings"]["train"]["seq"]
    steps = run["outcome"]["merged_tokens"] / (batch * seq)
    return 2 * steps * 2 * (learners - 1) * 2 * run["outcome"]["params"]


def moved(run):
    """Bytes of all learners, up and down."""
    return run["outcome"]["bytes_up"] + run["outcome"]["bytes_down"]


def byte_cells(run):
    """MB that the learners moved, how many times fewer that is than a ring at the row's own batch, and at RING_BATCH."""
    if run["config"]["settings"]["algorithm"] == "data_parallel" or moved(run) == 0:
        return ["", "", ""]
    rings = [ring_bytes(run, batch) / moved(run) for batch in (run["config"]["global_batch"], RING_BATCH)]
    return [f"{moved(run) / 1e6:,.0f}"] + [f"{times:,.0f}x" if times > 0 else "" for times in rings]


def backends(row):
    """What trained the row: lines of before there was more than one kind of machine do not say it."""
    return ", ".join(sorted({r["outcome"].get("backend", "amx or avx512") for r in row.values()}))


def cohort(run):
    merges = {int(n): c for n, c in run["outcome"]["cohorts"].items()}
    total = sum(merges.values())
    return sum(n * c for n, c in merges.items()) / total if total else 0


def lost(run):
    """The share of the learners' time whose work was not merged."""
    config, outcome = run["config"], run["outcome"]
    seq = config["settings"]["train"]["seq"]
    rate = sum(s * b * seq for s, b in zip(config["speeds"], config["batches"])) / (config["step_ns"] / 1e9)
    return 1 - outcome["merged_tokens"] / (rate * outcome["virtual_s"])


def time_to(run, loss):
    """Virtual seconds until the loss was reached first, between two points in a straight line."""
    points = run["outcome"]["points"]
    for (t0, _, l0), (t1, _, l1) in zip(points, points[1:]):
        if l1 <= loss:
            return t0 + (t1 - t0) * (l0 - loss) / (l0 - l1) if l0 > loss else t0
    return None


def while_training(run):
    """The points but for one after the closing merges, which no training follows."""
    points = run["outcome"]["points"]
    return points[:-1] if points and points[-1][2] == run["eval_loss"] else points


def time_ratios(row, base):
    """Time to the loss that both have when their training ends, as a share of the base's."""
    ratios = []
    for seed in sorted(row):
        if seed in base and while_training(row[seed]) and while_training(base[seed]):
            target = max(while_training(row[seed])[-1][2], while_training(base[seed])[-1][2])
            mine, other = time_to(row[seed], target), time_to(base[seed], target)
            if mine and other:
                ratios.append(mine / other)
    return ratios


def marks(experiment, row, base):
    wanted = 1 if experiment in ONE_SEED or experiment.startswith("sweep") else SEEDS_WANTED
    pairs = len([s for s in row if s in base])
    found = []
    if names_of(experiment) and next(iter(row.values()))["row"] not in names_of(experiment):
        found.append("the file has no such row any more")
    if pairs < wanted:
        found.append(f"{pairs} of {wanted} seeds")
    tokens = min(tokens_a_parameter(r) for r in row.values())
    if tokens < 0.97 * TOKENS_WANTED:
        found.append(f"{tokens:.2g} tokens a parameter, not {TOKENS_WANTED:.0f}")
    return found


def verdict(experiment, row, base, bar):
    """The words of the last column."""
    too_few = marks(experiment, row, base)
    if too_few:
        return "no verdict: " + ", ".join(too_few)
    if bar is None:
        return ""
    mean, error = mean_and_error(differences(row, base))
    upper = mean + 2 * (error or 0)
    return "holds" if upper <= bar else f"does not hold ({upper:+.2f})"


def mixed(row, base):
    """A pair of two kinds of machine has their difference in it."""
    return "" if backends(row) == backends(base) else f"{backends(row)} against {backends(base)}"


def line_of(experiment, name, rows):
    row = rows[name]
    newest = row[max(row)]
    losses = [r["eval_loss"] for r in row.values()]
    against, bar = judged_by(experiment, name, newest)
    base = rows.get(against)
    cells = [name, f"{mean_and_error(losses)[0]:.4f}", str(len(row)), f"{mean_and_error([tokens_a_parameter(r) for r in row.values()])[0]:.2f}"]
    values = differences(row, base) if base and against != name else []
    if values:
        mean, error = mean_and_error(values)
        said = [words for words in (verdict(experiment, row, base, bar), mixed(row, base)) if words]
        cells += [against, f"{mean:+.2f}" + (f" ± {error:.2f}" if error is not None else ""),
                  "" if bar is None else f"{bar:+.1f}", "; ".join(said)]
    else:
        few = marks(experiment, row, row)
        cells += ["", "", "", "no verdict: " + ", ".join(few) if few else ""]
    cells += byte_cells(newest) + [f"{cohort(newest):.1f}" if cohort(newest) else "", f"{newest['outcome']['outer_steps']:,}" if cohort(newest) else "",
                                   backends(row)]
    return "| " + " | ".join(cells) + " |"


def extra_of(experiment, rows):
    """A sentence or two that belong to one experiment alone."""
    text = []
    for name, row in rows.items():
        newest = row[max(row)]
        against, _ = judged_by(experiment, name, newest)
        base = rows.get(against)
        if newest["config"].get("trace"):
            text.append(f"`{name}`: {100 * lost(newest):.0f}% of the learners' time was lost, "
                        f"{newest['outcome']['rejoins']} returns (seed {newest['seed']}).")
        if newest["config"].get("joiners") and base:
            ratios = time_ratios(row, base)
            if ratios:
                mean, error = mean_and_error(ratios)
                text.append(f"`{name}`: time to the same loss {mean:.3f}"
                            + (f" ± {error:.3f}" if error is not None else "")
                            + f" of `{against}` (bar 0.70).")
    return text


def section(runs, experiment, short):
    rows = rows_of(runs, experiment, short)
    newest = next(iter(next(iter(rows.values())).values()))
    data = ", ".join(newest["config"]["data"])
    model = newest["config"]["settings"]["model"]["name"]
    lines = [f"## {TITLES.get(experiment, experiment)}" + (" (short form)" if short else ""), "",
             f"`experiments/{experiment}.yaml`; {model} ({newest['outcome']['params']:,} parameters), text: {data}, "
             f"judged by {newest['outcome']['eval_tokens']:,} tokens.", "",
             "| row | loss | seeds | tokens a parameter | against | difference % | bar % | verdict | MB | fewer than a ring at its batch "
             f"| ... at {RING_BATCH} sequences | contributions a merge | merges | back end |",
             "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
    lines += [line_of(experiment, name, rows) for name in rows]
    extra = extra_of(experiment, rows)
    return lines + ([""] + extra if extra else []) + [""]


def falling(r):
    """How the outer rate of a scouted row ends."""
    if not r["decay"]:
        return ""
    return f"{100 * r['decay']:g}%" + ("" if r["floor"] == 0.1 else f", to {r['floor']:g}")


def scout_group(r):
    """Rows that may stand in one table: sitting, model, tokens, Muon, sequences of a step, H, top-k."""
    return (r.get("sitting", 0), r.get("model", "1m"), r["tokens_per_param"], r["muon"], 8 * r.get("batch", 8), r["period"],
            r.get("topk", 0) > 0)


def scout_title(group):
    sitting, model, tokens, muon, batch, period, sparse = group
    return (f"Sitting {sitting}, {model}, {tokens:g} tokens a parameter, {'Muon' if muon else 'AdamW'} inside, {batch} sequences a step, "
            f"H = {period}"
            + (", top-k with feedback up; differences to the best without it:" if sparse else ":"))


def scout_table(rows, base):
    """Data-parallel and the best of 2, 4 and 8 learners, of one group."""
    sparse = rows[0].get("topk", 0) > 0
    lines = ["| learners | merge | inner rate | outer rate | falls over | momentum | loss | difference % | averaged |",
             "|---|---|---|---|---|---|---|---|---|"]
    for learners in sorted({r["learners"] for r in rows}):
        alone = learners == 1
        for r in sorted((r for r in rows if r["learners"] == learners), key=lambda r: r["eval_loss"])[:SCOUTED_SHOWN]:
            momentum = f"{r['outer_mu']:g}" + (f" after {r['mu_warmup']}" if r["mu_warmup"] else "")
            outer = ["", "", ""] if alone else [f"{r['outer_lr']:g}", falling(r), momentum]
            merge = "" if alone else r["merge"] + (f", {r['topk']} of 4096" if sparse else "")
            cells = ["data-parallel" if alone else str(learners), merge, f"{r['inner_lr']:g}", *outer,
                     f"{r['eval_loss']:.4f}", f"{100 * (r['eval_loss'] / base - 1):+.2f}", f"{r['averaged_loss']:.4f}"]
            lines.append("| " + " | ".join(cells) + " |")
    return lines + [""]


def scouted(path):
    """The section of what experiments/scout.py saw; nothing of it is a result."""
    if not path.exists():
        return []
    rows = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    lines = [
        "## Scouted on a GPU: where to look", "",
        f"`experiments/scout.jsonl` has {len(rows)} runs that `experiments/scout.py` trained: PyTorch (eager) on one GPU, with few codecs, "
        "one seed, text of the other tables (gutenberg; by a tokenizer of 8,192 tokens for 14m). **No final "
        "figures**: they say which settings are worth a run of pelago itself. Momentum \"0.8 after 20\" grows from nothing over 20 outer "
        "steps of a fragment. Falls over: the share of the run, at its end, in which the outer rate falls to a tenth. Averaged: the mean of "
        "the outer parameters over the last tenth. Differences to the best row with the fewest learners of the table; of each number of "
        f"learners the best {SCOUTED_SHOWN}. The same row twice came out 0.2% apart. Sittings read different parts of the text.", ""]
    for group in sorted({scout_group(r) for r in rows}):
        own = [r for r in rows if scout_group(r) == group]
        dense = [r for r in rows if scout_group(r) == group[:-1] + (False,)] or own
        base = min(dense, key=lambda r: (r["learners"], r["eval_loss"]))["eval_loss"]
        lines += [scout_title(group), ""] + scout_table(own, base)
    return lines


def page(runs):
    lines = [
        "# Results", "",
        "Made by `experiments/tables.py` from the lines that `pelago sim --experiment` wrote and, where it says so, from "
        "`experiments/notes.md`; not edited by hand. "
        "docs/experiments.md says how.", "",
        "Loss: nats a token of the outer parameters on held-out text. Difference: mean over paired seeds ± standard error "
        "of it, in loss. A bar holds when mean + 2 standard errors is at most the bar; where the two rows were run by two back ends the "
        "verdict names both. \"No verdict\" marks rows with fewer seeds or "
        "tokens than were asked for: what they say so far. MB: what all learners together sent and got, of the last seed. Beside it, "
        "how many times more a ring all-reduce of data-parallel training in bf16 moves, for as many tokens and learners: at the row's own "
        f"batch, and at {RING_BATCH} sequences a step. (A row of 16 sequences takes four times as many steps, and the ring of its batch moves "
        "four times as much.) Merges: of all fragments together, in the whole run.", ""]
    lines += (FOLDER / "notes.md").read_text(encoding="utf-8").splitlines()
    order = list(TITLES) + sorted({r["experiment"] for r in runs} - set(TITLES))
    for short in (False, True):
        for experiment in order:
            if experiment != "tiny" and rows_of(runs, experiment, short):
                lines += section(runs, experiment, short)
    lines += scouted(FOLDER / "scout.jsonl")
    return "\n".join(lines).rstrip("\n") + "\n"


def main(words):
    out, results = "docs/results.md", "experiments/results.jsonl"
    check = "--check" in words
    words = [w for w in words if w != "--check"]
    if "--out" in words:
        at = words.index("--out")
        out = words[at + 1]
        del words[at : at + 2]
    if words:
        results = words[0]
    text = page(read(results))
    if check:
        same = pathlib.Path(out).read_text(encoding="utf-8") == text
        if not same:
            print(f"{out} is not what experiments/tables.py makes of {results} and notes.md: run it", file=sys.stderr)
        return 0 if same else 1
    pathlib.Path(out).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
