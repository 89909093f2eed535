"""The suites that time calls inside a process: stream, parse, call, concurrent, memory."""

from benchmarks.bench import ANTHROPIC, BARE, CNLLM, FAST, GENAI, HAND, OFF, OPENAI, RAW, TYPED, Bench, Measured
from benchmarks.payloads import MARKUP, Setting
from benchmarks.stats import Goal, Section, ratio, spread

MB = 1e6
FLAT = 2  # MB; by hand, which keeps every piece until the end, it is 4
_FRAMED = {
    "m": "one HTTP chunk per event",
    "c": "16 KB HTTP chunks",
    "o": "one HTTP chunk and write per event",
}
_CUT = {"16k": "in 16 KB pieces", "whole": "in one piece", "event": "one event a feed"}
_HEAD = "how | peer | CPU µs per unit | wall µs per unit | CPU, x reference | wall, x reference | peak RSS MB"


def _add(section: Section, how: str, measured: Measured, reference: str) -> None:
    """A row for each peer, or a remark why there is none."""
    section.remarks += [f"{label}, {how}: not measured: {why}" for label, why in measured.broken.items()]
    for label in (label for label, samples in measured.samples.items() if samples):
        cpu, wall = measured.cpu(label), measured.wall(label)
        against = ratio(cpu, measured.cpu(reference)), ratio(wall, measured.wall(reference))
        peak = spread(s.peak / MB for s in measured.samples[label])
        section.rows.append([how, label, spread(cpu), spread(wall), *against, peak])


def stream(bench: Bench) -> Section:
    """Target 1: CPU per chunk of a stream."""
    section = Section("stream: Client.stream, unit: one chunk, reference: by hand", _HEAD)
    for mode, how in _FRAMED.items():
        peers = bench.peers(CNLLM, FAST, HAND, OPENAI, RAW)
        measured = bench.compare(peers, "stream", Setting(bench.port, mode, 1000))
        _add(section, how, measured, HAND)
        if mode == "m":
            ours, fast, hand, sdk, raw = map(measured.cpu, (CNLLM, FAST, HAND, OPENAI, RAW))
            section.goals = [
                Goal(f"stream, {how}: CPU per chunk against httpx + orjson", ratio(ours, hand), 1.25),
                Goal(f"cnllm[fast], stream, {how}: CPU per chunk against a raw socket", ratio(fast, raw), 2),
                Goal("cnllm[fast], stream: how far below the openai SDK (CPU)", ratio(sdk, fast), 18, at_most=False),
                Goal("stream: how far below the openai SDK (CPU)", ratio(sdk, ours), 7, at_most=False),
            ]
        if bench.effort.batches == 1:
            section.remarks.append("a quick run leaves the other framings out")
            break
    return section


def parse(bench: Bench) -> Section:
    """Target 2: StreamParser.feed on bytes already received."""
    section = Section("parse: StreamParser.feed on bytes received; unit: one chunk, reference: orjson", _HEAD)
    for mode, how in _CUT.items():
        measured = bench.compare([CNLLM, BARE, TYPED], "parse", Setting(bench.port, mode, 1000))
        _add(section, how, measured, BARE)
        if mode != "event":
            found = ratio(measured.cpu(CNLLM), measured.cpu(BARE))
            section.goals.append(Goal(f"StreamParser.feed, {how}: CPU against split + orjson", found, 2.5))
    return section


def wires(bench: Bench) -> Section:
    """The other wire protocols: what an event costs against one of a chat stream, and against the vendor's SDK."""
    section = Section(
        "wires: the other protocols; unit: one event, reference: the chat wire, or the vendor's SDK", _HEAD
    )
    setting = Setting(bench.port, "event", 1000)
    chat, size = bench.compare([CNLLM], "parse", setting), _size(setting)
    for wire, sdk in (("anthropic-messages", ANTHROPIC), ("gemini", GENAI), ("openai-responses", OPENAI)):
        setting = Setting(bench.port, "event", 1000, wire)
        fed = bench.compare([CNLLM], "parse", setting)
        _add(section, f"{wire}, StreamParser.feed", fed, CNLLM)
        found = ratio(fed.cpu(CNLLM), chat.cpu(CNLLM))
        section.goals.append(Goal(f"{wire}: CPU per event fed against the chat wire", found, 1.3))
        longer = size / _size(setting)
        section.remarks.append(f"{wire}: an event of the chat stream has {longer:.2f} times the bytes of one here")
        measured = bench.compare([CNLLM, FAST, sdk], "stream", Setting(bench.port, "m", 1000, wire))
        _add(section, f"{wire}, a stream", measured, sdk)
        for ours in (CNLLM, FAST):
            below = ratio(measured.cpu(sdk), measured.cpu(ours))
            section.goals.append(Goal(f"{wire}, {ours}: how far below the {sdk} (CPU)", below, 6, at_most=False))
    return section


def _size(setting: Setting) -> float:
    """The bytes of an event, on average."""
    events = setting.events()
    return sum(map(len, events)) / len(events)


def call(bench: Bench) -> Section:
    """Target 3: a whole request."""
    section = Section("call: Client.call, unit: one request, reference: by hand", _HEAD)
    measured = bench.compare(bench.peers(CNLLM, FAST, HAND, OPENAI, RAW), "call", Setting(bench.port, "m", 0))
    _add(section, "not streamed", measured, HAND)
    ours, fast, hand, sdk, raw = map(measured.cpu, (CNLLM, FAST, HAND, OPENAI, RAW))
    section.goals = [
        Goal("whole request: CPU against httpx + orjson", ratio(ours, hand), 1.15),
        Goal("cnllm[fast], whole request: CPU against a raw socket", ratio(fast, raw), 5),
        Goal("cnllm[fast], whole request: how far below the openai SDK (CPU)", ratio(sdk, fast), 8, at_most=False),
        Goal("whole request: how far below the openai SDK (CPU)", ratio(sdk, ours), 4, at_most=False),
    ]
    return section


def concurrent(bench: Bench) -> Section:
    """Target 4: many streams at once in one process."""
    section = Section("concurrent: 256 streams of 200 chunks at once; unit: one chunk, reference: by hand", _HEAD)
    setting = Setting(bench.port, "m", 200)
    measured = bench.compare([CNLLM, FAST, HAND, RAW], "astream", setting, once=256)
    _add(section, _FRAMED["m"], measured, HAND)
    speed = ratio(measured.wall(HAND), measured.wall(CNLLM))
    fast = ratio(measured.wall(RAW), measured.wall(FAST))
    peak, high = (spread(s.peak / MB for s in measured.samples[peer]) for peer in (CNLLM, FAST))
    many = bench.compare([FAST], "astream", setting, once=1000)
    _add(section, "1,000 streams", many, FAST)
    section.goals = [
        Goal("cnllm[fast], 256 streams at once: chunks per second against raw sockets", fast, 0.5, at_most=False),
        Goal("cnllm[fast], 256 streams at once: peak RSS of the process", high, 60, "MB"),
        Goal("256 streams at once: chunks per second against httpx", speed, 0.8, at_most=False),
        Goal("256 streams at once: peak RSS of the process", peak, 60, "MB"),
    ]
    return section


def filters(bench: Bench) -> Section:
    """What looking for calls in the text costs, on text that has none and on text that is nothing else."""
    section = Section("filters: calls in text looked for; unit: one chunk, or one character", _HEAD)
    measured = bench.compare([CNLLM, OFF], "parse", Setting(bench.port, "event", 50_000))
    _add(section, "50,000 chunks, one event a feed", measured, OFF)
    cost = ratio(measured.cpu(CNLLM), measured.cpu(OFF))
    section.goals.append(Goal("50,000 plain chunks: CPU against not looking for calls in text", cost, 1.25))
    plain: list[float] = []
    for name in MARKUP:
        measured = bench.compare([CNLLM], "markup", Setting(bench.port, name, 10_000_000))
        _add(section, f"10 MB of {name}", measured, CNLLM)
        if name == "plain":
            plain = measured.cpu(CNLLM)
        else:
            found = ratio(measured.cpu(CNLLM), plain)
            section.goals.append(Goal(f"10 MB of {name} in one text: CPU against plain text", found, 2))
    return section


def memory(bench: Bench) -> Section:
    """Target 7: what a long stream takes in memory beside its text."""
    setting = Setting(bench.port, "m", 50_000)
    text = 2 * (setting.expected.text + setting.expected.reasoning)  # with Chinese: 2 bytes a character
    head = "peer | the text itself MB | peak RSS growth beyond it MB | peak allocated beyond it MB"
    section = Section("memory: one stream of 50,000 chunks", head)
    measured = bench.compare([CNLLM, HAND], "memory", setting, once=1)
    section.remarks = [f"{label}: not measured: {why}" for label, why in measured.broken.items()]
    for label, samples in measured.samples.items():
        grown = spread((s.growth - text) / MB for s in samples)
        held = spread((s.held - text) / MB for s in samples)
        section.rows.append([label, f"{text / MB:.2f}", grown, held])
        if label == CNLLM:
            section.goals = [
                Goal("50,000 chunks: peak RSS growth beyond the text", grown, FLAT, "MB"),
                Goal("50,000 chunks: peak allocated in Python beyond the text", held, FLAT, "MB"),
            ]
    return section
