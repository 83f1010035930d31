"""Compares the metadata of two nodes."""

from __future__ import annotations

import attrs

from kwire.metadata.image import MetadataImage

EACH_CHANGE = {"metadata.log.max.record.bytes.between.snapshots": "1"}


def comparable(image: MetadataImage) -> MetadataImage:
    return attrs.evolve(image, epoch=0, offset=0)
