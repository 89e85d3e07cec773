"""What the board of images remembers."""

from klet.images.board import ImageBoard
from klet.model.images import ImageKey, ImageRecord, ImageUse, ImageUseKind
from klet.model.unknown import Unknown

A, B = ImageRecord("a", ("r@1",), ("r:1",), 5), ImageRecord("b", tags=("s:1",), size=7)
USE = ImageUse(kind=ImageUseKind.CONTAINER, pod="web")


def test_an_image_is_first_detected_once_and_used_as_long_as_it_is_seen_in_use():
    board = ImageBoard()
    assert (board.found, board.images()) == ((), ())
    board.put_list([A, B], at=1.0)
    board.put_uses({A.key: (USE,)}, at=1.0)
    board.put_list([A, B], at=2.0)
    board.put_uses({A.key: (USE,)}, at=2.0)
    board.put_list([A, B], at=3.0)
    board.put_uses({}, at=3.0)
    a, b = board.images()
    assert (a.first_detected, a.last_used, a.users, a.unused_since) == (1.0, 2.0, (), 2.0)
    assert (b.first_detected, b.last_used, b.users, b.unused_since) == (1.0, None, (), 1.0)
    assert board.found == (A, B)


def test_an_image_in_use_is_not_unused():
    board = ImageBoard()
    board.put_list([A], at=1.0)
    board.put_uses({A.key: (USE,), ImageKey("unknown"): (USE,)}, at=1.0)
    [known] = board.images()
    assert (known.users, known.unused_since) == ((USE,), None)


def test_an_image_that_went_and_came_back_is_new():
    board = ImageBoard()
    board.put_list([A], at=1.0)
    board.put_uses({A.key: (USE,)}, at=1.0)
    board.put_list([B], at=2.0)
    board.put_list([A, B], at=3.0)
    assert [(known.image.id, known.first_detected, known.last_used) for known in board.images()] == [
        ("a", 3.0, None),
        ("b", 2.0, None),
    ]


def test_a_tag_that_moves_changes_the_image_and_not_its_history():
    board = ImageBoard()
    board.put_list([A], at=1.0)
    moved = ImageRecord("a", ("r@1",), (), 5)
    board.put_list([moved], at=2.0)
    [known] = board.images()
    assert (known.image, known.first_detected) == (moved, 1.0)
    assert board.found == (moved,)


def test_a_failed_listing_is_shown_and_what_is_known_stays():
    board = ImageBoard()
    board.put_list([A], at=1.0)
    board.put_error("broken")
    assert board.found == Unknown("broken")
    assert [known.image for known in board.images()] == [A]
    board.remove(A.key)
    assert board.found == Unknown("broken")
    board.put_list([A], at=2.0)
    assert board.found == (A,)


def test_a_removed_image_is_gone_at_once():
    board = ImageBoard()
    board.put_list([A, B], at=1.0)
    board.remove(A.key)
    board.remove(A.key)
    assert board.found == (B,)
    assert [known.image for known in board.images()] == [B]


def test_images_of_two_handlers_are_two_images():
    board = ImageBoard()
    kata = ImageRecord("a", handler="kata")
    board.put_list([A, kata], at=1.0)
    board.put_uses({kata.key: (USE,)}, at=1.0)
    assert [(known.image, known.users) for known in board.images()] == [(A, ()), (kata, (USE,))]


def test_an_image_is_named_by_a_tag_or_else_by_a_digest_or_else_by_its_id():
    assert [ImageRecord("i", ("r@1",), ("r:1",)).name, ImageRecord("i", ("r@1",)).name, ImageRecord("i").name] == [
        "r:1",
        "r@1",
        "i",
    ]
