"""The files for Slurm and KubeRay are ones that bash, Ray and stillme take."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.command_lines import parse

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
SLURM = EXAMPLES / "slurm-ray.sh"
SBATCH = re.compile(
    "array|cpus-per-task|gpus-per-node|job-name|mem|nodes|ntasks-per-node|output|partition|requeue|time"
)
"""Options of sbatch, in its manual's words."""
SLURM_SETS = {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_CPUS_PER_TASK"}
"""Variables that a job finds."""
KUBERAY = {
    "job": "activeDeadlineSeconds backoffLimit entrypoint rayClusterSpec shutdownAfterJobFinishes suspend "
    "submissionMode ttlSecondsAfterFinished",
    "cluster": "authOptions enableInTreeAutoscaling headGroupSpec rayVersion workerGroupSpecs",
    "head": "rayStartParams serviceType template",
    "workers": "groupName maxReplicas minReplicas numOfHosts rayStartParams replicas template",
}
"""Fields of ray.io/v1, from the reference of its types; Kubernetes drops others without a word."""


@pytest.fixture(scope="module")
def job() -> dict[str, Any]:
    return yaml.safe_load((EXAMPLES / "kuberay-job.yaml").read_text())


def test_bash_reads_the_slurm_script():
    subprocess.run([shutil.which("bash") or "bash", "-n", str(SLURM)], check=True)


def test_the_directives_of_slurm_come_before_the_first_command():
    lines = SLURM.read_text().splitlines()
    directives = [place for place, line in enumerate(lines) if line.startswith("#SBATCH --")]
    commands = [place for place, line in enumerate(lines) if line and not line.startswith("#")]
    assert lines[0] == "#!/bin/bash"
    assert max(directives) < min(commands)


def test_slurm_knows_every_directive_and_every_variable():
    text = SLURM.read_text()
    directives = re.findall(r"^#SBATCH --([a-z-]+)", text, re.MULTILINE)
    assert {"nodes", "ntasks-per-node", "time"} <= set(directives)
    assert all(SBATCH.fullmatch(directive) for directive in directives)
    assert set(re.findall(r"\bSLURM_\w+", text)) <= SLURM_SETS


def test_ray_knows_every_option_of_the_slurm_script():
    symmetric_run = pytest.importorskip("ray.scripts.symmetric_run").symmetric_run
    scripts = pytest.importorskip("ray.scripts.scripts")
    (called,) = re.findall(r"ray symmetric-run (.*?) -- ", SLURM.read_text().replace("\\\n", " "))
    known = {name for command in (symmetric_run, scripts.start) for option in command.params for name in option.opts}
    named = set(re.findall(r"--[a-z-]+", called))
    assert {"--address", "--min-nodes", "--num-gpus"} <= named <= known
    assert "get-auth-token" in scripts.cli.commands


def test_both_run_stillme_as_its_command_line_takes_it(job: dict[str, Any]):
    (slurm,) = re.findall(r'(stillme run) "\$audit"', SLURM.read_text())
    assert parse(f"{slurm} my-audit").info_name == parse(job["spec"]["entrypoint"]).info_name == "run"


def test_every_pod_of_the_job_has_the_same_image_and_the_run_folder(job: dict[str, Any]):
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    pods = [group["template"]["spec"] for group in groups]
    folder = Path(job["spec"]["entrypoint"].split()[-1])
    assert len({container["image"] for pod in pods for container in pod["containers"]}) == 1
    for pod in pods:
        (claim,) = pod["volumes"]
        (mount,) = pod["containers"][0]["volumeMounts"]
        assert (mount["name"], claim["persistentVolumeClaim"]) == (claim["name"], {"claimName": "audits"})
        assert folder.is_relative_to(mount["mountPath"])


def test_kuberay_and_ray_start_know_every_field_of_the_job(job: dict[str, Any]):
    start = pytest.importorskip("ray.scripts.scripts").start
    known = {name.removeprefix("--") for option in start.params for name in option.opts}
    cluster = job["spec"]["rayClusterSpec"]
    parts = [("job", job["spec"]), ("cluster", cluster), ("head", cluster["headGroupSpec"])]
    parts += [("workers", group) for group in cluster["workerGroupSpecs"]]
    for what, part in parts:
        assert set(part) <= set(KUBERAY[what].split()), what
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert set(group["rayStartParams"]) <= known
        assert all(isinstance(value, str) for value in group["rayStartParams"].values()), "ray start takes texts"
        (container,) = group["template"]["spec"]["containers"]
        assert container["image"].endswith(f":{cluster['rayVersion']}"), "the operator asks the version in the image"


def test_the_head_does_no_work_and_workers_have_gpus(job: dict[str, Any]):
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    for group in cluster["workerGroupSpecs"]:
        (container,) = group["template"]["spec"]["containers"]
        assert "nvidia.com/gpu" in container["resources"]["limits"]
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
