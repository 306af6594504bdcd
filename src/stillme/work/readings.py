"""After edits and judgements: have readers say what single pictures show, edits once and controls twice.

The control of an edit is the unedited portrait as its editor returns pictures: the no-op arm's where there is one, else
the source as a JPEG of the output's size. It is saved as an edit of the editor `control`, so that it is exported,
merged and verified like any other. Pictures of the same bytes are read once.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

from PIL import ImageOps

from stillme.audit import Audit, NamedEditor, NamedJudge
from stillme.audit.design import CONTROL, control_spec, reading_key
from stillme.core import images
from stillme.core.errors import PicturesUnreachable, UnreadableImage
from stillme.core.protocols import Judge
from stillme.core.rubric import REPEATS
from stillme.core.types import Arm, Edited, ImageFile, Pair, Portrait, Prompt, Request
from stillme.runs.control_pairs.asking import ControlPairs
from stillme.runs.store import EditRow, Store
from stillme.work.answers import Answers
from stillme.work.edits import requests_of
from stillme.work.judgements import asking, worker_spec_of
from stillme.work.loop import Activity, run_sequentially, work_on
from stillme.work.stage import Session, grouped, limits_of, missing_in
from stillme.work.tally import Tally
from stillme.work.tasks import Task
from stillme.work.workers import JudgeWorker

_LOOK_AHEAD = 500
_NOTHING_ASKED = Prompt(id="", text="", category="", subcategory="")
_ENCODED_AGAIN = Prompt(id=CONTROL, text="", category=CONTROL, subcategory=CONTROL)


def read(audit: Audit, store: Store, session: Session) -> tuple[list[Activity], list[Tally]]:
    """Have every reader read the pictures that it has not read: those of one provider in turn, others together."""
    if not audit.readers:
        return [], []
    pictures = _pictures(audit, store, session)
    lanes: dict[str, list[Activity]] = {}
    tallies = [Tally(f"read {named.name}", sum(pictures.values())) for named in audit.readers]
    for named, tally in zip(audit.readers, tallies, strict=True):
        lanes.setdefault(named.judge.provider, []).append(_read(named, pictures, audit, store, session, tally))
    return [run_sequentially(lane) for lane in lanes.values()], tallies


def _pictures(audit: Audit, store: Store, session: Session) -> dict[str, int]:
    """Every picture to read, by its hash, with how often."""
    edited: dict[str, None] = {}
    controls: dict[str, None] = {}
    for named in audit.editors:
        first: dict[str, tuple[Portrait, str]] = {}
        for request, image in _edited(requests_of(audit, named, session), store):
            if request.arm is Arm.NOOP:
                controls[image] = None
            else:
                edited[image] = None
                first.setdefault(request.portraits[0].id, (request.portraits[0], image))
        if Arm.NOOP not in audit.config.arms:
            controls |= dict.fromkeys(_encoded_again(named, first.values(), store, session))
    return dict.fromkeys(edited, 1) | dict.fromkeys(controls, REPEATS)


def _edited(requests: Iterable[Request], store: Store) -> Iterator[tuple[Request, str]]:
    """Requests of one portrait, with the hash of their picture; those without are passed over."""
    stream = (request for request in requests if len(request.portraits) == 1)
    while chunk := list(itertools.islice(stream, _LOOK_AHEAD)):
        edits = store.edits([request.key for request in chunk])
        for request in chunk:
            if (stored := edits.get(request.key)) and stored.image:
                yield request, stored.image


def _encoded_again(
    named: NamedEditor, portraits: Iterable[tuple[Portrait, str]], store: Store, session: Session
) -> Iterator[str]:
    """The control of each portrait, made where there is none."""
    spec = control_spec(named.editor.spec)
    known = {portrait: image for editor, portrait, image in store.controls() if editor == named.editor.spec.key}
    gone = store.pictures.gone(known.values())
    for portrait, edit in portraits:
        if (image := known.get(portrait.id)) and image not in gone:
            yield image
            continue
        try:
            made = ImageFile(path=store.pictures.where(edit), sha256=edit)
            width, height = images.read_picture(store.pictures.located(made).path).size
            source = images.read_picture(store.pictures.located(portrait.image).path)
        except (UnreadableImage, PicturesUnreachable) as error:
            session.options.say(f"{portrait.id} has no control for the readings of {named.name}: {error}")
            continue
        # An editor may return another shape; a stretched face would be read as another one.
        encoded = io.BytesIO()
        ImageOps.contain(source, (width, height)).save(encoded, "JPEG", quality=spec.parameters["quality"])
        request = Request(
            portraits=(portrait,),
            prompt=_ENCODED_AGAIN,
            arm=Arm.NOOP,
            instruction=f"JPEG, {width} × {height}",
            editor=spec,
            seed=0,
        )
        image = store.pictures.add(encoded.getvalue())
        outcome = Edited(image=b"", effective={"size": [width, height]})
        store.add([EditRow(request=request, outcome=outcome, image=image, attempts=1, seconds=0.0, cost=0.0)])
        yield image


def _read(
    named: NamedJudge, pictures: Mapping[str, int], audit: Audit, store: Store, session: Session, tally: Tally
) -> Activity:
    """All questions to one reader."""
    judge = named.judge
    answers = Answers(named, store, ControlPairs(named, audit, store, session.options.say, None))
    tasks = missing_in(store, "assessment", _tasks(judge, pictures, store), session, tally)
    with closing(judge):
        return (
            yield from work_on(
                worker_spec_of(named, store),
                JudgeWorker(judge, store.pictures),
                lambda worker: asking(worker, judge, store, answers, done_word="read"),
                grouped(tasks, judge.capabilities.batch),
                limits=limits_of(audit.config.executor, judge.capabilities.concurrency, named.time_limit),
                session=session,
                tally=tally,
            )
        )


def _tasks(judge: Judge, pictures: Mapping[str, int], store: Store) -> Iterator[Task]:
    for sha256, repeats in pictures.items():
        picture = ImageFile(path=store.pictures.where(sha256), sha256=sha256)
        for repeat in range(repeats):
            key = reading_key(sha256, judge.spec.key, repeat)
            yield Task(key=key, pair=Pair(edit=sha256, sources=(), edited=picture, prompt=_NOTHING_ASKED, epoch=repeat))
