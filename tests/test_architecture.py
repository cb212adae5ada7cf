"""The house as designed: who imports whom, and whether DVC watches all that a stage imports."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from project import ROOT, read_preset
from pydantic import BaseModel
from ruamel.yaml import YAML

import vlm
from vlm.config import Params, load_params
from vlm.model.build import vlm_config

# Layers from the top; a module imports from its own layer or those below.
LAYERS = [
    ["vlm.app", "stages"],
    ["vlm.training", "vlm.evaluation", "vlm.reporting"],
    ["vlm.generation"],
    ["vlm.model", "vlm.data", "vlm.losses"],
    ["vlm.scenes", "vlm.config"],
    ["vlm.files", "vlm.rules", "vlm.errors", "vlm.marks"],
]
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for folder in ("vlm", "stages")
    for path in (ROOT / folder).rglob("*.py")
}
STAGES = sorted(
    name for name in MODULES if name.startswith("stages.") and not name.startswith("stages.running")
)
# They hold no value that changes a result: the schema has no defaults, the others only names.
EXEMPT = ("vlm/config", "vlm/__init__.py", "stages/__init__.py")


@cache
def imports(module: str) -> frozenset[str]:
    """Modules of ours that `module` imports when it runs (not those for type checkers only)."""
    found = set()
    for node in ast.walk(_without_type_checking(ast.parse(MODULES[module].read_text()))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(name for name in found if name in MODULES)


def _without_type_checking(tree: ast.Module) -> ast.Module:
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    return tree


def closure(module: str) -> set[str]:
    """`module`, what it imports, what those import, and the packages they lie in."""
    seen, todo = set(), [module]
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        todo += [n for n in imports(name) if not _exempt(MODULES[n])]
        todo += [name.rpartition(".")[0]] if name.rpartition(".")[0] in MODULES else []
    return seen


def _exempt(path: Path) -> bool:
    relative = path.relative_to(ROOT).as_posix()
    return any(relative == name or relative.startswith(name + "/") for name in EXEMPT)


def layer(module: str) -> int | None:
    for depth, names in enumerate(LAYERS):
        if any(module == name or module.startswith(name + ".") for name in names):
            return depth
    return None


def external_imports(module: str) -> set[str]:
    tree = ast.parse(MODULES[module].read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("module", [m for m in MODULES if layer(m) is not None])
def test_imports_go_downwards(module):
    here = layer(module)
    for other in imports(module):
        there = layer(other)
        if there is not None and here is not None:
            assert there >= here, f"{module} imports {other}"


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("vlm.model")])
def test_the_model_knows_no_data_losses_or_training(module):
    forbidden = ("vlm.data", "vlm.losses", "vlm.training", "vlm.scenes")
    assert not [other for other in imports(module) if other.startswith(forbidden)]


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("vlm.scenes")])
def test_scenes_need_numpy_alone(module):
    allowed = set(sys.stdlib_module_names) | {"numpy", "vlm"}
    assert external_imports(module) <= allowed


def test_schema_and_report_import_no_torch():
    for module in ("vlm.data.schema", "vlm.data.tables", "stages.report", "stages.generate"):
        for name in closure(module):
            if name != "stages.running.stage":  # which names torch for the stages that use it
                assert "torch" not in external_imports(name), name


def test_no_stage_imports_another():
    for stage in STAGES:
        others = {name for name in imports(stage) if name.startswith("stages.")}
        assert all(name.startswith("stages.running") for name in others)


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith("vlm.")])
def test_the_library_reads_no_environment_and_no_arguments(module):
    if module.startswith("vlm.app") or module == "vlm.__main__":
        return
    source = MODULES[module].read_text()
    for forbidden in ('params.yaml")', "sys.argv", "os.environ", "getenv", "Path.cwd"):
        assert forbidden not in source


def dvc_stages() -> dict[str, dict]:
    return YAML(typ="safe").load((ROOT / "dvc.yaml").read_text())["stages"]


@pytest.mark.parametrize("stage", sorted(dvc_stages()))
def test_dvc_watches_all_that_a_stage_imports(stage):
    deps = dvc_stages()[stage]["deps"]
    for module in closure(f"stages.{stage}"):
        path = MODULES[module].relative_to(ROOT).as_posix()
        if _exempt(MODULES[module]):
            continue
        watched = any(path == dep or path.startswith(dep + "/") for dep in deps)
        assert watched, f"{stage} imports {path}, which its deps in dvc.yaml leave out"


@pytest.mark.parametrize("stage", sorted(dvc_stages()))
def test_dvc_watches_nothing_that_is_not_there(stage):
    for dep in dvc_stages()[stage]["deps"]:
        made = dep.startswith(("data/train", "data/val", "data/test", "data/pred", "models"))
        assert made or dep in ("metrics", "plots") or (ROOT / dep).exists(), dep


@pytest.mark.parametrize("stage", sorted(dvc_stages()))
def test_dvc_watches_every_section_that_a_stage_reads(stage):
    source = MODULES[f"stages.{stage}"].read_text()
    code = "\n".join(ast.unparse(node) for node in ast.parse(source).body[1:])
    # A check of what later stages would refuse anyway changes no result of this one.
    free = {"runtime", "check_batches"}
    read = set(re.findall(r"\bparams\.(train_vqa\.\w+|[a-z_]+)", code)) - free
    declared = set()
    for name in dvc_stages()[stage]["params"]:
        heads = ("classifier", "generator") if "${" in name else ("",)
        declared |= {name.replace("${item.head}", head) for head in heads}
    if stage == "report":  # shows all of them
        assert "params.model_dump" in source
        assert declared == set(Params.model_fields) - {"runtime"}
    else:
        assert read == declared


def test_every_stage_is_in_the_pipeline():
    assert {f"stages.{name}" for name in dvc_stages()} == set(STAGES) - {"stages"}


@pytest.mark.parametrize("name", [p.stem for p in (ROOT / "presets").glob("*.yaml")])
def test_presets_have_the_keys_of_the_schema_and_validate(name):
    assert keys(read_preset(name)) == schema_keys(Params)
    load_params(ROOT / "presets" / f"{name}.yaml")


def test_the_notebooks_preset_is_its_recipe():
    params = load_params(ROOT / "presets/notebook.yaml")
    data, vision, text = params.data, params.model.vision, params.model.text
    assert (data.train_scenes, data.test_scenes, data.questions_per_scene) == (850, 150, 1)
    assert data.families == {"what_shape": 1, "count": 1, "exists": 2}
    assert (vision.hidden, vision.depth, vision.patch_size) == (32, 2, 4)
    assert (vision.norm, vision.position) == ("post", "sinusoidal_1d")
    assert (text.hidden, text.depth, text.norm) == (32, 1, "post")
    assert (params.model.decoder.depth, params.model.decoder.norm) == (1, "post")
    classifier, generator = params.train_vqa.classifier, params.train_vqa.generator
    assert (classifier.steps, classifier.batch_size, classifier.learning_rate) == (300, 128, 3e-3)
    assert (generator.steps, generator.batch_size, generator.learning_rate) == (800, 256, 2e-3)
    assert (classifier.fusion, generator.memory, generator.pad_phrases) == (
        "multiply",
        "pooled",
        20,
    )
    for head in (classifier, generator):
        adam = (head.final_rate, head.warmup_steps, head.weight_decay, head.beta2, head.clip_norm)
        assert adam == (1.0, 0, 0.0, 0.999, 0.0) and head.keep == "last"
    assert params.benchmark_kv_cache.batch_sizes == [8, 512]
    assert params.benchmark_kv_cache.lengths == [20, 40]
    assert params.evaluate.fresh_scenes == 4000


def test_vit_b16_is_the_encoder_of_that_name():
    params = load_params(ROOT / "presets/vit_b16.yaml")
    config = vlm_config(params.model, params.data.world.image_size, 3, 64).vision
    assert config == vlm.ViTConfig()


def test_the_default_preset_is_what_params_yaml_says():
    assert (ROOT / "presets/default.yaml").read_text() == (ROOT / "params.yaml").read_text()


def keys(values: dict, path: str = "") -> set[str]:
    """Dotted names of all sections and values; families are a value."""
    found = set()
    for key, value in values.items():
        name = f"{path}{key}"
        found.add(name)
        if isinstance(value, dict) and key != "families":
            found |= keys(value, name + ".")
    return found


def schema_keys(section: type[BaseModel], path: str = "") -> set[str]:
    found = set()
    for key, info in section.model_fields.items():
        found.add(f"{path}{key}")
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            found |= schema_keys(info.annotation, f"{path}{key}.")
    return found


@pytest.mark.parametrize("name", vlm.__all__)
def test_public_names_load_on_use(name):
    assert getattr(vlm, name) is not None


def test_importing_vlm_brings_no_torch():
    code = "import sys, vlm; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
