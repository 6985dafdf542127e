"""Draws the boards of the docs, of a real run, with Grafana's own panel code: ``make pictures``.

``python docs/draw_boards.py``: Real engines push and pull, under load and with faults, and a real Prometheus watches
(``tests/vllm/watched.py``). What it has is kept in ``.lab/boards``; ``--again`` draws that anew, without engines.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.pictures import IMAGES, RECORD, looks
from tests.prometheus import Prometheus
from tests.vllm.watched import variables, watched

from pushscope.dashboards.boards import boards
from pushscope.dashboards.grafana_json import dashboard
from pushscope.dashboards.panel import Board
from pushscope.lab.launch import Zygote
from pushscope.lab.model import make_model

ROOT: Final = Path(__file__).parents[1]
PANELS: Final = ROOT / "docs" / "panels"
RUN: Final = ROOT / ".lab" / "boards"
HEALTHY_S: Final = 120.0
"""So that lines have some length."""
WIDTH_PX: Final = 1400
PIECE_UNITS: Final = 45
"""A taller board is cut into pieces of about this height, in units of Grafana's grid."""
EXEMPLARS: Final = "--enable-feature=exemplar-storage"
LABEL_S: Final = 12
"""A full minute that is no longer ago than this has its label cut at the end of a plot."""
JOINED: Final = "timestamp(kv_transfer_exposed_seconds_count)"
"""While D's agents see both sides."""
RATES_S: Final = 15.0
"""Then rates no longer look back to before that."""
STUCK: Final = (
    'timestamp(ALERTS{alertname="KVTransferStuck", alertstate="firing"})'
    " and on () (min(pushscope_recording) == 1) and on () (min(up) == 1)"
)
"""While all else is well."""
LOOK_BACK: Final = "[20m:1s]"


def make_run(folder: Path) -> None:
    """Into an empty folder: Prometheus' data, and which time of it is worth a look."""
    with tempfile.TemporaryDirectory(prefix="tiny-model-") as model, ExitStack() as stack:
        make_model(Path(model))
        zygote = stack.enter_context(Zygote())
        run = stack.enter_context(watched(Path(model), zygote, folder, HEALTHY_S))
        began = _moment(run.prometheus, f"max(min_over_time(({JOINED}){LOOK_BACK}))")
        end = math.floor(_moment(run.prometheus, f"max(max_over_time(({STUCK}){LOOK_BACK}))"))
    if end % 60 < LABEL_S:
        end -= end % 60 + 1
    (folder / "shown.json").write_text(json.dumps({"fromS": math.floor(began + RATES_S), "toS": end}))


def _moment(prometheus: Prometheus, query: str) -> float:
    """When something was."""
    found = [moment for series in prometheus.now(query) for moment in series.values]
    if len(found) != 1:
        sys.exit(f"expected one moment of {query}, found {len(found)}: the run is none to draw, make another")
    return found[0]


def draw(run: Path) -> None:
    """Every board, from what a run has left, up to the last moment at which something was stuck."""
    shown = json.loads((run / "shown.json").read_text())
    nothing = run / "nothing.yml"
    nothing.write_text("{}\n")
    data = run / "prometheus" / "data"
    with Prometheus(nothing, data, "--storage.tsdb.retention.time=10y", EXEMPLARS) as prometheus:
        chosen = {board.uid: variables(prometheus, board) for board in boards()}
        job = {
            "prometheus": prometheus.url,
            "widthPx": WIDTH_PX,
            **shown,
            "boards": {
                board.uid: {
                    "board": dashboard(board),
                    "variables": chosen[board.uid],
                    "pieces": pieces(board),
                }
                for board in boards()
            },
        }
        with tempfile.TemporaryDirectory() as folder:
            asked = Path(folder) / "job.json"
            asked.write_text(json.dumps(job))
            drawn = subprocess.run(["node", "draw.mjs", asked, folder], cwd=PANELS, check=False)
            if drawn.returncode:
                sys.exit("the boards were not drawn; what is above says why")
            keep(Path(folder), shown["toS"])


def pieces(board: Board) -> int:
    """Into how many pictures it is cut."""
    bottom = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard(board)["panels"])
    return max(1, round(bottom / PIECE_UNITS))


def keep(folder: Path, at_s: float) -> None:
    """The pictures go to the docs, in place of older ones, with a note of what they show."""
    for old in IMAGES.glob("pushscope-*.png"):
        old.unlink()
    record: dict[str, Any] = {"date": time.strftime("%Y-%m-%d", time.gmtime(at_s)), "boards": {}}
    for board in boards():
        pictures = sorted(folder.glob(f"{board.uid}-*.png"))
        for picture in pictures:
            with Image.open(picture) as image:
                colours = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
            colours.save(IMAGES / picture.name, optimize=True)
        record["boards"][board.uid] = {
            "looks": looks(dashboard(board)),
            "pictures": [picture.name for picture in pictures],
        }
    RECORD.write_text(json.dumps(record, indent=2) + "\n")


def main() -> None:
    """Make a run, or take the last, and draw it."""
    parser = argparse.ArgumentParser(description="Draw the boards of the docs, of a real run.")
    parser.add_argument("--again", action="store_true", help=f"draw the run that is kept in {RUN}")
    again = parser.parse_args().again
    if again and not (RUN / "shown.json").exists():
        sys.exit(f"expected a run in {RUN}, found none: leave --again out to make one")
    if shutil.which("node") is None or shutil.which("prometheus") is None:
        sys.exit(
            "expected node and prometheus on the PATH: Debian's packages nodejs, npm and prometheus have them"
        )
    if not (PANELS / "node_modules").exists():
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=PANELS, check=True)
    if not again:
        shutil.rmtree(RUN, ignore_errors=True)
        RUN.mkdir(parents=True)
        make_run(RUN)
    draw(RUN)


if __name__ == "__main__":
    main()
