"""Spark's settings on a machine without Maven's central repository: a repository in a folder, of the jars of the lock.

Spark resolves `spark.jars.packages` by Ivy, as ever; only where it looks is another place. The jars have no descriptors
there but the ones that are written here: the first jar of a set needs the others.
"""

from __future__ import annotations

from pathlib import Path

from devtools.jars import Coordinates, jars

_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="here"/>
  <resolvers><ibiblio name="here" m2compatible="true" root="{root}"/></resolvers>
</ivysettings>
"""
_DESCRIPTOR = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>{it.group}</groupId><artifactId>{it.artifact}</artifactId><version>{it.version}</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{it.group}</groupId><artifactId>{it.artifact}</artifactId>"
    "<version>{it.version}</version></dependency>"
)


def write_spark_conf(folder: Path, more: dict[str, str]) -> Path:
    """The folder to call SPARK_CONF_DIR, below `folder`; `more` are settings besides."""
    conf, root = folder / "conf", folder / "maven"
    conf.mkdir(parents=True)
    connector = _coordinates(jars("spark-kafka"))
    first = next(it for it in connector if it.artifact.startswith("spark-sql-kafka"))
    for path, it in zip(jars("spark-kafka"), connector, strict=True):
        _publish(root, path, it, [other for other in connector if it == first != other])
    for path, it in zip(jars("spark-iceberg"), _coordinates(jars("spark-iceberg")), strict=True):
        _publish(root, path, it, [])
    settings = conf / "ivysettings.xml"
    settings.write_text(_SETTINGS.format(root=root.as_uri()))
    found = {"spark.jars.ivySettings": settings, "spark.jars.ivy": folder / "ivy", **more}
    lines = [f"{name} {value}" for name, value in found.items()]
    (conf / "spark-defaults.conf").write_text("\n".join(lines) + "\n")
    return conf


def _coordinates(paths: tuple[Path, ...]) -> list[Coordinates]:
    """Returns coordinates by the paths in the store: group/artifact/version/file."""
    return [Coordinates(*path.parts[-4:-1]) for path in paths]


def _publish(root: Path, path: Path, it: Coordinates, needs: list[Coordinates]) -> None:
    folder = root / it.group.replace(".", "/") / it.artifact / it.version
    folder.mkdir(parents=True, exist_ok=True)
    (folder / it.path.name).symlink_to(path)
    dependencies = "".join(_DEPENDENCY.format(it=other) for other in needs)
    (folder / f"{it.artifact}-{it.version}.pom").write_text(_DESCRIPTOR.format(it=it, dependencies=dependencies))
