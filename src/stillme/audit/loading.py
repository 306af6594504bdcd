"""Read audit.toml and check all of it: every problem is reported at once, before anything runs."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from stillme.audit import checks
from stillme.audit.audit import Audit, NamedEditor, NamedExtractor, NamedJudge, reads_features
from stillme.audit.config import (
    Config,
    ControlPairsSection,
    EditorSection,
    EstimatesSection,
    ExtractorSection,
    JudgeSection,
    MitigationSection,
    PortraitsSection,
    PromptsSection,
    ReaderSection,
    ReadingsSection,
    RolesSection,
)
from stillme.audit.design import FILE
from stillme.audit.grid import levels_of, sentence_of
from stillme.audit.places import Location, TomlPlaces, explain, toml_fault
from stillme.core import prompts as prompt_sets
from stillme.core import registry
from stillme.core.errors import (
    Invalid,
    InvalidAudit,
    InvalidParameters,
    NotReady,
    Problem,
    StillmeError,
    did_you_mean,
)
from stillme.core.paper import setting
from stillme.core.protocols import Editor, Judge
from stillme.core.types import Arm, Portrait, Prompt
from stillme.mitigation.arms import NEEDS_FEATURES
from stillme.mitigation.features import Extractor
from stillme.mitigation.measured import extractor_named
from stillme.portraits import folder as portrait_folder

M = TypeVar("M", bound=BaseModel)
V = TypeVar("V")


def load(path: Path, *, out: Path | None = None, ready: bool = True) -> Audit:
    """The audit at `path` (a file, or a folder that holds one), with `out` or its folder as the run folder.

    With `ready`, also everything that a run needs is checked: keys, extras, every picture decoded.
    """
    file = _audit_file(path)
    if file.suffix.lower() != ".toml" and not file.name.startswith("."):  # a draft of audit.toml begins with a dot
        raise StillmeError(f"{file} is not an audit. Name a folder that has an {FILE}, or a file that ends in .toml.")
    try:
        text = file.read_text("utf-8-sig")
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidAudit(str(file), [Problem(place="", message=f"is not TOML: {toml_fault(error)}")]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidAudit(str(file), [Problem(place="", message=f"cannot be read: {error}")]) from None
    loader = _Loader(file, TomlPlaces(text), data, ready=ready)
    audit = loader.audit(out or file.parent)
    if loader.problems or audit is None:
        raise InvalidAudit(str(file), sorted(loader.problems, key=_line))
    return audit


def _line(problem: Problem) -> int:
    number = problem.place.removeprefix("line ").partition(",")[0]
    return int(number) if number.isdecimal() else 0


def refusals(path: Path) -> list[Problem]:
    """Why `stillme run` would refuse the audit at `path` on this machine; empty if it would not."""
    try:
        load(path)
    except InvalidAudit as error:
        return list(error.problems)
    return []


@dataclass(slots=True)
class Given:
    """Parts of an audit that were built in Python; they need no registered name."""

    portraits: tuple[Portrait, ...] | None = None
    prompts: tuple[Prompt, ...] | None = None
    editors: dict[str, Editor] = field(default_factory=dict[str, Editor])
    """By the name in the audit."""
    judges: dict[str, Judge] = field(default_factory=dict[str, Judge])


def load_given(file: Path, data: Mapping[str, Any], given: Given, *, out: Path) -> Audit:
    """The audit of tables as audit.toml has them, and of what was built in Python."""
    loader = _Loader(file, TomlPlaces(""), data, ready=True, given=given)
    audit = loader.audit(out)
    if loader.problems or audit is None:
        raise InvalidAudit("The audit", loader.problems)
    return audit


def _audit_file(path: Path) -> Path:
    if path.is_dir():
        if (path / FILE).is_file():
            return path / FILE
        raise StillmeError(f"{path} has no {FILE}. Write one with `stillme new {shlex.quote(str(path))}`.")
    if not path.exists():
        raise StillmeError(f"{path} does not exist. Start an audit there with `stillme new {shlex.quote(str(path))}`.")
    return path


class _Loader:
    """Continues after a problem, so that all are reported at once."""

    def __init__(
        self, file: Path, places: TomlPlaces, data: Mapping[str, Any], *, ready: bool, given: Given | None = None
    ) -> None:
        self._given = given or Given()
        self._file, self._places, self._data, self._ready = file, places, data, ready
        base = data.get("base")
        self._base = (file.parent / (base if isinstance(base, str) else "")).resolve()
        executor = data.get("executor")
        kind = cast("Mapping[str, object]", executor).get("kind", "local") if isinstance(executor, Mapping) else "local"
        self._works_here = kind == "local"
        """Whether edits are made on this machine, so that its GPUs count."""
        self.problems: list[Problem] = []
        self._built: dict[str, list[int]] = {}
        """Of the editors and of the judges that could be built: their places in the file."""

    def audit(self, folder: Path) -> Audit | None:
        sections = self._sections()
        portraits = self._portraits(sections.get("portraits") or PortraitsSection())
        roles: RolesSection | None = sections.get("roles")
        prompts = self._prompts(_counterbalanced(sections.get("prompts") or PromptsSection(), roles))
        self._check_arms(sections.get("arms"))
        editors = self._named("editors", EditorSection, self._editor)
        judges = self._named("judges", JudgeSection, self._judge)
        extractors = self._extractors(sections.get("mitigation"), sections.get("arms") or (), editors)
        readers = self._readers(sections.get("readings"), portraits)
        factors = checks.factors_of(self._problem, sections.get("estimates") or EstimatesSection(), portraits)
        of_editors = [(named.name, named.editor) for named in editors]
        of_judges = [(named.name, named.judge) for named in judges]
        checks.check_specs_differ(self._problem_of_built, "editor", of_editors, "list both seeds under `seeds`")
        checks.check_specs_differ(self._problem_of_built, "judge", of_judges, "raise `epochs`")
        checks.check_ensemble(self._problem, sections.get("ensemble"), judges)
        casts = checks.cast_roles(self._problem, roles, portraits, prompts, factors) if roles else ()
        for named in editors:
            named.editor.set_casts([(cast.portraits, cast.prompt) for cast in casts])
            named.editor.set_portraits(portraits)
            named.editor.set_prompts(prompts)
        if self._ready and portraits:
            say = self._problem_of_built
            checks.check_requests(say, "editors", [editor for _, editor in of_editors], portraits, prompts)
            checks.check_requests(say, "judges", [judge for _, judge in of_judges], portraits, prompts)
            for index, named in enumerate(editors):
                for sentence in named.editor.seed_problems(named.seeds):
                    say(("editors", index), sentence)
            checks.check_reuse(self._problem, sections.get("reuse"), self._base)
        checks.check_inputs(self._problem_of_built, editors, casts)
        alone = [prompt for prompt in prompts if not (roles and prompt.target)]
        names = [named.name for named in editors]
        sample = checks.draw_sample(self._problem, sections.get("sample"), names, portraits, alone, factors, self._base)
        if self.problems:
            return None
        return Audit(
            file=self._file,
            folder=folder,
            config=Config.model_validate(self._data),
            portraits=portraits,
            prompts=prompts,
            editors=tuple(editors),
            judges=tuple(judges),
            factors=factors,
            sample=sample,
            casts=casts,
            extractors=tuple(extractors),
            readers=tuple(readers),
        )

    def _problem(self, location: Location, message: str) -> None:
        self.problems.append(Problem(place=self._places.place(location), message=message))

    def _problem_of_built(self, location: Location, message: str) -> None:
        """A problem whose location counts only the editors or judges that could be built."""
        kind, index, *rest = location
        self._problem((kind, self._built[str(kind)][int(index)], *rest), message)

    def _sections(self) -> dict[str, Any]:
        """The valid sections; problems of the others are added."""
        try:
            return dict(Config.model_validate(self._data))
        except ValidationError as error:
            self.problems.extend(explain(error, self._places, (), Config, self._data))
            broken = {detail["loc"][0] for detail in error.errors()}
        sound = {name: value for name, value in self._data.items() if name not in broken}
        fillers = {"editors": [{"use": "x"}], "judges": [{"use": "x"}]}
        usable = Config.model_validate(fillers | sound)
        return {name: value for name, value in usable if name in sound}

    def _portraits(self, section: PortraitsSection) -> tuple[Portrait, ...]:
        try:
            if self._given.portraits is not None:
                portraits = self._given.portraits
            elif section.source in registry.plugins("portrait set"):
                portraits = registry.portrait_set(section.source)
            elif "/" in section.source or (self._base / section.source).is_dir():
                portraits = portrait_folder.load((self._base / section.source).resolve())
            else:
                known = ", ".join(registry.plugins("portrait set"))
                self._problem(
                    ("portraits", "source"),
                    f"{section.source!r} is neither a folder nor one of the sets {known}; write a folder as ./name",
                )
                return ()
        except Invalid as error:
            where = self._places.place(("portraits", "source"))
            self.problems.extend(
                Problem(place=f"{where}, {error.source} {p.place}".rstrip(), message=p.message) for p in error.problems
            )
            return ()
        kept = self._chosen(section, portraits)
        # Those that came with stillme can be read, as `stillme doctor` tells; to decode them takes a second.
        shipped = self._given.portraits is None and registry.is_own("portrait set", section.source)
        if self._ready and not shipped:
            where = self._places.place(("portraits", "source"))
            self.problems.extend(
                Problem(place=f"{where}, {problem.place}", message=problem.message)
                for problem in portrait_folder.check(kept)
            )
        return kept

    def _chosen(self, section: PortraitsSection, portraits: tuple[Portrait, ...]) -> tuple[Portrait, ...]:
        kept = portraits
        for attribute, wanted in section.only.items():
            known = {portrait.attributes.get(attribute, "") for portrait in portraits}
            levels = [wanted] if isinstance(wanted, str) else wanted
            for level in levels:
                if level not in known:
                    self._problem(
                        ("portraits", "only", attribute),
                        f"no portrait has {attribute} = {level!r}.{did_you_mean(level, known)} "
                        f"Known: {', '.join(sorted(filter(None, known))) or 'nothing; no portrait has this attribute'}",
                    )
            kept = tuple(portrait for portrait in kept if portrait.attributes.get(attribute) in levels)
        if section.ids:
            known = {portrait.id for portrait in portraits}
            for name in section.ids:
                if name not in known:
                    self._problem(("portraits", "ids"), f"no portrait {name!r}.{did_you_mean(name, known)}")
            kept = tuple(portrait for portrait in kept if portrait.id in section.ids)
        if portraits and not kept and not self.problems:
            self._problem(("portraits", "only"), "leaves no portrait; loosen it")
        return kept[: section.limit]

    def _prompts(self, section: PromptsSection) -> tuple[Prompt, ...]:
        prompts: dict[str, Prompt] = {prompt.id: prompt for prompt in self._given.prompts or ()}
        for index, name in enumerate(section.sets if self._given.prompts is None else ()):
            location = ("prompts", "sets", index)
            try:
                is_file = name.endswith((".csv", ".toml"))
                loaded = prompt_sets.load(self._base / name) if is_file else registry.prompt_set(name)
            except Invalid as error:
                where = self._places.place(location)
                self.problems.extend(Problem(place=f"{where}, {p.place}", message=p.message) for p in error.problems)
                continue
            except StillmeError as error:
                self._problem(location, f"{error} Your own file must end in .csv or .toml.")
                continue
            for prompt in loaded:
                if prompt.id in prompts:
                    self._problem(location, f"the prompt id {prompt.id!r} is in two sets; rename one")
                prompts[prompt.id] = prompt
        for wanted in section.only:
            if prompts and wanted not in prompts:
                self._problem(("prompts", "only"), f"no prompt {wanted!r}.{did_you_mean(wanted, prompts)}")
        only = section.only
        return tuple(
            prompt for prompt in prompts.values() if not only or prompt.id in only or sentence_of(prompt) in only
        )

    def _check_arms(self, arms: Sequence[str] | None) -> None:
        if arms and len(set(arms)) < len(arms):
            self._problem(("arms",), "names an arm twice; name each once")

    def _named(self, kind: str, model: type[M], build: Callable[[M, str, Location], V | None]) -> list[V]:
        given = self._data.get(kind)
        entries = cast("list[Any]", given) if isinstance(given, list) else []
        built: list[V] = []
        names: set[str] = set()
        for index, entry in enumerate(entries):
            try:
                section = model.model_validate(entry)
            except ValidationError:
                continue  # already reported with the sections
            name = str(getattr(section, "name", None) or getattr(section, "use", ""))
            if name in names:
                self._problem((kind, index), f"a second one is called {name!r}; give it another `name`")
            names.add(name)
            plugin = build(section, name, (kind, index))
            if plugin is not None:
                built.append(plugin)
                self._built.setdefault(kind, []).append(index)
        return built

    def _editor(self, section: EditorSection, name: str, location: Location) -> NamedEditor | None:
        editor: Editor | None = self._given.editors.get(name) or self._plugin(
            "editor", section.use, section.parameters, location
        )
        if editor is None:
            return None
        if self._ready and self._works_here:
            for sentence in editor.lacking(online=False):
                self._problem(location, f"{name}: {sentence}")
        seeds = section.seeds or [editor.default_seed]
        if len(set(seeds)) < len(seeds):
            self._problem((*location, "seeds"), "names a seed twice; name each once")
        if section.paper and setting().named(section.paper) is None:
            known = ", ".join(paper.plugins[0] for paper in setting().editors)
            self._problem((*location, "paper"), f"the paper has no editor {section.paper!r}; write one of {known}")
        recipe = (
            None if name in self._given.editors else self._recipe("editor", section.use, section.parameters, editor)
        )
        return NamedEditor(
            name=name,
            editor=editor,
            seeds=tuple(seeds),
            recipe=recipe,
            time_limit=section.time_limit,
            paper=section.paper or "",
        )

    def _judge(self, section: JudgeSection, name: str, location: Location) -> NamedJudge | None:
        judge: Judge | None = self._given.judges.get(name) or self._plugin(
            "judge", section.use, section.parameters, location
        )
        if judge is None:
            return None
        if "reads" in section.parameters:
            self._problem((*location, "parameters", "reads"), f"is not yours to set; name {name!r} in [readings]")
        recipe = None if name in self._given.judges else self._recipe("judge", section.use, section.parameters, judge)
        return NamedJudge(
            name=name,
            judge=judge,
            epochs=section.epochs,
            control_pairs=section.control_pairs,
            recipe=recipe,
            time_limit=section.time_limit,
        )

    def _readers(self, section: ReadingsSection | None, portraits: Sequence[Portrait]) -> list[NamedJudge]:
        """Judges of single pictures, with the values of an attribute as their words for apparent race."""
        if section is None:
            return []
        known = levels_of(portraits)
        levels = sorted(filter(None, known.get(section.attribute, ())))
        if portraits and len(levels) < 2:
            have = f"The portraits have {', '.join(known)}" if known else "The portraits have no attributes"
            self._problem(
                ("readings", "attribute"),
                f"no two portraits differ in {section.attribute!r}.{did_you_mean(section.attribute, known)} {have}.",
            )
            return []
        readers: dict[str, NamedJudge] = {}
        for index, entry in enumerate(section.judges):
            location = ("readings", "judges", index)
            asked = self._reader_section(entry)
            name = asked.name or asked.use
            if name in readers:
                self._problem(location, f"a second one is called {name!r}; give it another `name`")
            if reader := self._reader(asked, name, levels, location):
                same = [other.name for other in readers.values() if other.judge.spec.key == reader.judge.spec.key]
                if same:
                    self._problem(location, f"{name!r} would read exactly as {same[0]!r} does; remove one of them")
                readers[name] = reader
        return list(readers.values())

    def _reader_section(self, entry: str | ReaderSection) -> ReaderSection:
        """The section; a name stands for that judge of the audit, or for one of the registry."""
        if isinstance(entry, ReaderSection):
            return entry
        given = cast("list[Any]", self._data.get("judges") or [])
        for judge in (cast("Mapping[str, Any]", judge) for judge in given if isinstance(judge, Mapping)):
            if (judge.get("name") or judge.get("use")) == entry:
                return ReaderSection(use=judge["use"], name=entry, parameters=judge.get("parameters", {}))
        return ReaderSection(use=entry)

    def _reader(
        self, section: ReaderSection, name: str, levels: Sequence[str], location: Location
    ) -> NamedJudge | None:
        try:
            kind = registry.plugin_class("judge", section.use.partition(":")[0])
        except StillmeError as error:
            self._problem(location, str(error))
            return None
        if "reads" not in kind.Parameters.model_fields:
            self._problem(
                location, f"{name!r} cannot read single pictures; name a vision-language model, or a function"
            )
            return None
        # Whatever a judge of pairs is told or shown twice: a reader sees one picture, once.
        own = {key: value for key, value in section.parameters.items() if key not in ("disclosure", "order", "axes")}
        parameters = {**own, "reads": levels}
        judge: Judge | None = self._plugin("judge", section.use, parameters, location)
        if judge is None:
            return None
        if self._ready:
            for sentence in judge.problems((), ()):
                self._problem(location, f"{name}: {sentence}")
        recipe = self._recipe("judge", section.use, parameters, judge)
        return NamedJudge(name=name, judge=judge, epochs=1, control_pairs=ControlPairsSection(share=0), recipe=recipe)

    def _recipe(
        self, kind: registry.Buildable, use: str, parameters: dict[str, Any], built: Editor | Judge
    ) -> registry.PluginRecipe:
        return registry.PluginRecipe(kind=kind, use=use, parameters=parameters, base=self._base, key=built.spec.key)

    def _extractors(
        self, section: MitigationSection | None, arms: Sequence[Arm], editors: Sequence[NamedEditor]
    ) -> list[NamedExtractor]:
        """What describes the portraits; empty if no editor reads what an arm would add."""
        if section and not NEEDS_FEATURES & set(arms):
            wanted = ", ".join(sorted(NEEDS_FEATURES))
            self._problem(("mitigation",), f"no arm uses it; add one of {wanted} to `arms`, or remove it")
        if not any(reads_features(named.editor, arm) for named in editors for arm in arms):
            return []
        extractors: dict[str, NamedExtractor] = {}
        for index, entry in enumerate((section or MitigationSection()).extractors):
            location = ("mitigation", "extractors", index)
            name = entry.name or entry.use
            if name in extractors:
                self._problem(location, f"a second one is called {name!r}; give it another `name`")
            if extractor := self._extractor(entry, location):
                extractors[name] = NamedExtractor(name=name, extractor=extractor)
        return list(extractors.values())

    def _extractor(self, entry: ExtractorSection, location: Location) -> Extractor | None:
        try:
            extractor = extractor_named(entry.use, entry.parameters)
        except StillmeError as error:
            self._problem(location, str(error))
            return None
        # Missing dependencies come first: without them the settings cannot be checked.
        lacking = registry.unmet(extractor.needs) if self._ready else []
        for sentence in lacking or (extractor.problems() if self._ready else ()):
            self._problem(location, f"{entry.use!r}: {sentence}")
        return extractor

    def _plugin(self, kind: registry.Buildable, use: str, parameters: dict[str, Any], location: Location) -> Any:
        try:
            return registry.build(kind, use, parameters, base=self._base, ready=self._ready)
        except NotReady as error:
            for sentence in error.lacking:
                self._problem((*location, "use"), f"{use!r}: {sentence}")
            return self._without_key(kind, use, parameters)
        except InvalidParameters as error:
            prefix = (*location, "parameters")
            self.problems.extend(explain(error.error, self._places, prefix, error.model, error.given))
        except StillmeError as error:
            self._problem((*location, "use"), str(error))
        return None

    def _without_key(self, kind: registry.Buildable, use: str, parameters: dict[str, Any]) -> Any:
        """A plugin that lacks only a key, so that its settings are checked as well."""
        name = use.partition(":")[0]
        needs = registry.plugin_class(kind, name).needs
        if registry.unmet(replace(needs, variables=())):
            return None  # without its packages the settings cannot be checked
        try:
            return registry.build(kind, use, parameters, base=self._base, ready=False)
        except StillmeError:
            return None  # named when the key is there


def _counterbalanced(section: PromptsSection, roles: RolesSection | None) -> PromptsSection:
    """With `counterbalance`, the variants of the paper's role sentences are added."""
    variants = "roles-counterbalance"
    if not roles or not roles.counterbalance or "roles" not in section.sets or variants in section.sets:
        return section
    return section.model_copy(update={"sets": [*section.sets, variants]})
