"""ACLs in the metadata: decided again if another node was first, and in the image as they are in the log."""

from __future__ import annotations

from kwire_protocol.internal.metadata_security import AccessControlEntryRecord, RemoveAccessControlEntryRecord

from kwire.metadata.controller.access.acls import create_acls, delete_acls
from kwire.metadata.image import Changes, MetadataImage
from kwire.metadata.snapshots import difference_records, image_records
from kwire.security.acls.acl import Acl
from kwire.security.acls.filters import AclFilter
from testkit.metadata.distant_log import answered
from testkit.metadata.harness import distant_service, record, service


def acl(name: str = "t", principal: str = "User:alice") -> Acl:
    return Acl(2, name, 3, principal, "*", 3, 3)


def test_each_acl_is_recorded_once() -> None:
    it = service()
    assert answered(it.change(create_acls, [acl(), acl("u"), acl()])) == [None] * 3
    assert answered(it.change(create_acls, [acl("u"), acl("v")])) == [None] * 2
    recorded = it.image.access.acls
    assert sorted(each.resource_name for each in recorded.values()) == ["t", "u", "v"]
    assert all(key == each.id for key, each in recorded.items())
    assert it.image.access.existing_acls == {acl(): 1, acl("u"): 1, acl("v"): 1}


def test_what_is_deleted_may_be_created_again() -> None:
    it = service()
    answered(it.change(create_acls, [acl(), acl("u")]))
    [deleted] = answered(it.change(delete_acls, [AclFilter(name="t")]))
    assert deleted.acls == [acl()]
    assert answered(it.change(delete_acls, [AclFilter(name="t")]))[0].acls == []
    answered(it.change(create_acls, [acl()]))
    assert set(it.image.access.existing_acls) == {acl(), acl("u")}


def test_an_acl_that_was_recorded_twice_is_deleted_completely() -> None:
    it = service()
    record(it, acl().record(b"1" * 16), acl().record(b"2" * 16))
    assert it.image.access.existing_acls == {acl(): 2}
    [deleted] = answered(it.change(delete_acls, [AclFilter()]))
    assert deleted.acls == [acl(), acl()]
    assert not it.image.access.acls
    assert not it.image.access.existing_acls


def test_an_acl_that_another_node_creates_meanwhile_is_not_created_twice() -> None:
    it, log = distant_service()
    theirs = [acl().record(b"x" * 16)]

    def append_as_other() -> None:
        if theirs:
            log.record_as_other(theirs.pop())

    log.others = append_as_other
    assert answered(it.change(create_acls, [acl()])) == [None]
    assert not theirs
    assert list(it.image.access.acls) == [b"x" * 16]


def applied(image: MetadataImage, *records: AccessControlEntryRecord | RemoveAccessControlEntryRecord) -> Changes:
    changes = Changes()
    for each in records:
        image.apply(each, offset=image.offset + 1, changes=changes)
    return changes


def test_an_id_that_is_recorded_again_stands_for_the_later_acl() -> None:
    image = MetadataImage()
    changes = applied(image, acl().record(b"1" * 16), acl("u").record(b"1" * 16))
    assert image.access.existing_acls == {acl("u"): 1}
    assert [it.resource_name for it in changes.access.acls_added] == ["t", "u"]
    assert [it.resource_name for it in changes.access.acls_removed] == ["t"]
    assert [
        it.resource_name for it in applied(image, RemoveAccessControlEntryRecord(b"1" * 16)).access.acls_removed
    ] == ["u"]
    assert image.access.existing_acls == {}


def test_a_snapshot_has_the_acls_and_so_has_what_leads_to_it() -> None:
    before, target = MetadataImage(), MetadataImage()
    applied(before, acl().record(b"1" * 16), acl("gone").record(b"2" * 16))
    applied(target, acl().record(b"1" * 16), acl("new").record(b"3" * 16))
    again = MetadataImage()
    for offset, each in enumerate(image_records(target)):
        again.apply(each, offset=offset)
    for offset, each in enumerate(list(difference_records(before, target))):
        before.apply(each, offset=before.offset + 1 + offset)
    for image in (again, before):
        assert image.access == target.access
        assert image.access.existing_acls == {acl(): 1, acl("new"): 1}
