# SPDX-License-Identifier: GPL-3.0-or-later
"""Command line of the portrait generator: `python -m portraits COMMAND` (see README.md)."""

import argparse
import json
import os
import sys
from pathlib import Path

from .parameters import Parameters, Quality


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m portraits", description="Render synthetic portraits with known parameters."
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=summary, description=summary)

    portrait = add("portrait", "Render one portrait from a JSON file of parameters.")
    portrait.add_argument("parameters", type=Path, help="JSON as `portraits plan` prints it, or a portrait's record")
    portrait.add_argument("output", type=Path, help="a .png or .webp file; the record is written beside it as .json")

    plan = add("plan", "Print the parameters of one portrait of the set, as a start for your own.")
    plan.add_argument("id", help="for example A_f_23")
    _add_quality(plan, Quality())

    whole = add("set", "Render the factorial set and write portraits.csv and parameters.json.")
    whole.add_argument("output", type=Path)
    whole.add_argument(
        "--identities", type=int, default=1, help="identities per gender × age cell (default 1: 84 portraits)"
    )
    whole.add_argument("--only", help="comma-separated ids, to render a part")
    whole.add_argument("--tables-only", action="store_true", help="render nothing; write the tables of what is there")
    _add_quality(whole, Quality())
    _add_workers(whole)

    calibration = add("calibration", "Render the calibration set and write its manifest of truths.")
    calibration.add_argument("output", type=Path)
    calibration.add_argument("--axes", help="comma-separated axes (default all)")
    calibration.add_argument("--further", action="store_true", help="the further subjects instead, with three changes")
    calibration.add_argument(
        "--tables-only", action="store_true", help="render nothing; write the manifest of what is there"
    )
    _add_quality(calibration, Quality(size=512, samples=6))
    _add_workers(calibration)

    sheet = add("sheet", "Make a contact sheet (PNG and HTML) of a rendered set.")
    sheet.add_argument("folder", type=Path)
    sheet.add_argument("--thumbnail", type=int, default=192, help="pixels a side (default 192)")

    card = add("card", "Measure a rendered set and write its dataset card (Markdown and JSON).")
    card.add_argument("folder", type=Path)
    card.add_argument(
        "--models", type=Path, required=True, help="folder with the detector's and estimators' ONNX files"
    )
    return parser


def _add_quality(parser: argparse.ArgumentParser, default: Quality) -> None:
    parser.add_argument("--size", type=int, default=default.size, help=f"pixels a side (default {default.size})")
    parser.add_argument(
        "--samples", type=int, default=default.samples, help=f"light paths a pixel (default {default.samples})"
    )


def _add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", type=Path, help="folder for the linear renders, to develop them again without Cycles")
    parser.add_argument("--workers", type=int, help="processes (default: one a core)")


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    # Each command imports only what it needs: a contact sheet does not need Blender.
    match options.command:
        case "portrait":
            from .render import render_portrait

            data = json.loads(options.parameters.read_text())
            record = render_portrait(
                options.output, Parameters.from_dict(data.get("parameters", data)), threads=os.cpu_count() or 1
            )
            print(json.dumps(record["measured"]))
        case "plan":
            from .factorial import find_planned

            planned = find_planned(options.id, Quality(size=options.size, samples=options.samples))
            print(json.dumps(planned.parameters.as_dict(), indent=1))
        case "set":
            from .batch import Job, render_all
            from .factorial import plan_set
            from .tables import write_tables

            planned = list(plan_set(options.identities, Quality(size=options.size, samples=options.samples)))
            if options.only:
                planned = [one for one in planned if one.id in options.only.split(",")]
            if not options.tables_only:
                render_all(
                    [Job(options.output / f"{one.id}.webp", one.parameters, options.keep) for one in planned],
                    options.workers,
                )
            write_tables(options.output, planned)
        case "calibration":
            from .batch import Job, render_all
            from .calibration import plan_calibration, plan_further, write_manifest

            plan = plan_further if options.further else plan_calibration
            changes = plan(Quality(size=options.size, samples=options.samples))
            if options.axes:
                changes = [change for change in changes if change.axis in options.axes.split(",")]
            jobs = {name: parameters for change in changes for name, parameters in change.pictures()}
            if not options.tables_only:
                render_all(
                    [Job(options.output / name, parameters, options.keep) for name, parameters in jobs.items()],
                    options.workers,
                )
            write_manifest(options.output, changes)
        case "sheet":
            from .sheet import write_sheet

            write_sheet(options.folder, options.thumbnail)
        case "card":
            from .card import write_card

            write_card(options.folder, options.models)
    return 0


if __name__ == "__main__":
    sys.exit(main())
