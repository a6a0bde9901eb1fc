"""deploy/compose.yaml and deploy/kubernetes against published schemas, and what ties their parts
together.
"""

import json
import re
import subprocess
import sys
import zipfile

import jsonschema
import pytest
import referencing
import yaml

from tests.helpers.processes import ROOT

DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
# wheels that hold the schemas; they are downloaded, and nothing of them is installed
WHEELS = ("kubernetes-validate==1.37.0", "dask-kubernetes==2026.3.0", "docker-compose==1.29.2")
SCHEMAS = "kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict/"
OPERATOR = "dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds/"


def manifests(*names):
    """Return the documents of files by kind."""
    texts = [(KUBERNETES / f"{name}.yaml").read_text() for name in names]
    return {each["kind"]: each for text in texts for each in yaml.safe_load_all(text)}


def pool_manifest():
    """Return the job that Prefect makes of pool.json with the values of prefect.yaml."""
    from prefect.utilities.templating import apply_values

    template = json.loads((KUBERNETES / "pool.json").read_text())
    plan = yaml.safe_load((KUBERNETES / "prefect.yaml").read_text())
    properties = template["variables"]["properties"]
    values = {name: each["default"] for name, each in properties.items() if "default" in each}
    values |= plan["deployments"][0]["work_pool"]["job_variables"]
    assert set(values) <= set(properties)
    # what the worker adds
    values |= {"name": "night", "labels": {"of": "prefect"}, "command": ["prefect"], "env": []}
    return apply_values(template["job_configuration"], values)["job_manifest"]


def pods():
    cluster = manifests("dask")["DaskCluster"]["spec"]
    run = pool_manifest()["spec"]["template"]["spec"]
    return {
        "worker": cluster["worker"]["spec"],
        "scheduler": cluster["scheduler"]["spec"],
        "run": run,
    }


# --- what always holds ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["worker", "scheduler", "run"])
def test_a_pod_mounts_what_it_declares_and_runs_as_the_user_of_the_image(name):
    pod = pods()[name]
    [container] = pod["containers"]
    assert {each["name"] for each in container["volumeMounts"]} == {
        each["name"] for each in pod["volumes"]
    }
    assert pod["securityContext"]["runAsNonRoot"]
    assert f"--uid {pod['securityContext']['runAsUser']} " in (DEPLOY / "Dockerfile").read_text()
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]
    known = {each["metadata"]["name"] for each in manifests("storage", "dask").values()}
    secrets = {"bigfs-certificates", "bigfs-store"}  # made by the commands in the files' heads
    for volume in pod["volumes"]:
        assert volume.get("persistentVolumeClaim", {}).get("claimName", "bigfs-data") in known
        assert volume.get("secret", {}).get("secretName", "bigfs-store") in secrets
    for source in container["envFrom"]:
        assert source.get("configMapRef", {}).get("name", "bigfs-dask") in known
        assert source.get("secretRef", {}).get("name", "bigfs-store") in secrets


def test_the_runs_of_kubernetes_find_their_paths_and_may_reach_the_scheduler():
    paths = {each["mountPath"] for each in pods()["run"]["containers"][0]["volumeMounts"]}
    plan = yaml.safe_load((KUBERNETES / "prefect.yaml").read_text())
    [step] = plan["pull"]
    assert [each["directory"] for each in step.values()] == ["/data"]
    for deployment in plan["deployments"]:
        given = deployment["parameters"]
        for path in (given["source"], given["out"], given["engine"]["tls"]):
            assert f"/{path.split('/')[1]}" in paths
        assert given["overlap"] in ("skip", "wait")
        address = given["engine"]["scheduler"]
    assert (
        address
        in manifests("dask")["DaskCluster"]["spec"]["worker"]["spec"]["containers"][0]["args"]
    )
    labels = pool_manifest()["spec"]["template"]["metadata"]["labels"]
    allowed = manifests("dask")["NetworkPolicy"]["spec"]["ingress"]
    assert labels in [rule["from"][0].get("podSelector", {}).get("matchLabels") for rule in allowed]


def test_every_service_of_the_compose_file_has_its_volumes_a_check_and_a_version():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for name, service in compose["services"].items():
        assert re.search(r":.*\d+\.\d+|:RELEASE\.[\d-]+T", service["image"]), name
        is_once = service.get("profiles") == ["once"]
        assert is_once or "healthcheck" in service, name
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in compose["volumes"] or (DEPLOY / source).exists(), (name, volume)
    worker = compose["services"]["worker"]
    # relative paths of deploy/prefect.yaml mean this folder, and its runs the cluster of the file
    assert "data:/data" in worker["volumes"]
    scheduler = worker["environment"]["DASK_SCHEDULER_ADDRESS"]
    assert scheduler in compose["services"]["dask-worker"]["command"]


def test_the_image_has_a_version_and_a_user():
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    [base] = [line for line in lines if line.startswith("ARG BASE=")]
    assert re.search(r"python:3\.\d+\.\d+-", base)
    assert {line.split()[1] for line in lines if line.startswith("FROM")} == {"$BASE"}
    assert "USER bigfs" in lines
    kept = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    for line in lines:
        if line.startswith("COPY") and "--from" not in line:
            assert {f"!{name}" for name in line.split()[1:-1]} <= set(kept)


# --- against the schemas --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """Return a file of one of the wheels."""
    folder = tmp_path_factory.mktemp("wheels")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    asked = subprocess.run(
        [*pip, "--no-deps", "--only-binary=:all:", "--dest", folder, *WHEELS],
        capture_output=True,
        text=True,
        timeout=200,
    )
    if asked.returncode:
        last = asked.stderr.strip().splitlines()[-1]
        pytest.skip(f"the schemas cannot be downloaded: {last}")

    def read(name):
        for wheel in folder.iterdir():
            with zipfile.ZipFile(wheel) as files:
                if name in files.namelist():
                    return files.read(name).decode()
        raise KeyError(name)

    return read


@pytest.fixture(scope="module")
def validate(read):
    """Check a document against the strict schema of its kind in Kubernetes."""
    definitions = json.loads(read(f"{SCHEMAS}_definitions.json"))
    as_draft = referencing.jsonschema.DRAFT7.create_resource
    registry = referencing.Registry().with_resource("_definitions.json", as_draft(definitions))

    def validate(document):
        group, _, version = document["apiVersion"].rpartition("/")
        name = "-".join(filter(None, [document["kind"].lower(), group.split(".")[0], version]))
        schema = json.loads(read(f"{SCHEMAS}{name}.json"))
        jsonschema.Draft7Validator(schema, registry=registry).validate(document)

    return validate


@pytest.mark.nightly
def test_the_manifests_fit_the_schemas_of_kubernetes(validate):
    documents = manifests("storage", "dask")
    del documents["DaskCluster"]
    assert set(documents) == {"Namespace", "PersistentVolumeClaim", "ConfigMap", "NetworkPolicy"}
    for document in [*documents.values(), pool_manifest()]:
        validate(document)
    for name, pod in pods().items():  # of which the operator makes its deployments
        meta = {"name": name}
        validate({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod})
    with pytest.raises(jsonschema.ValidationError):
        validate(documents["ConfigMap"] | {"dta": {}})


@pytest.mark.nightly
def test_the_cluster_fits_the_definition_of_the_operator(read):
    definition = yaml.safe_load(read(f"{OPERATOR}daskcluster.yaml"))
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    cluster = manifests("dask")["DaskCluster"]
    jsonschema.validate(cluster, schema)
    del cluster["spec"]["scheduler"]["service"]
    with pytest.raises(jsonschema.ValidationError, match="service"):
        jsonschema.validate(cluster, schema)


@pytest.mark.nightly
def test_the_compose_file_fits_the_specification(read):
    schema = json.loads(read("compose/config/compose_spec.json"))
    schema["properties"]["name"] = {"type": "string"}  # newer than this copy
    check = jsonschema.Draft201909Validator(schema)
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    shared = {key: compose.pop(key) for key in list(compose) if key.startswith("x-")}
    assert set(shared) == {"x-bigfs", "x-dask", "x-prefect", "x-store"}
    check.validate(compose)
    compose["services"]["worker"]["volume"] = []
    with pytest.raises(jsonschema.ValidationError):
        check.validate(compose)
