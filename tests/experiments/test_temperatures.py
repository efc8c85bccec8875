"""The figures behind "is it the pictures or the viewers" in docs/models.md."""

from experiments.temperatures import DRAWN, ORDINARY, by_category, shown


def test_images_are_grouped_by_the_category_in_their_names() -> None:
    assert by_category(["Action-001", "Art-002", "Action-003"]) == {"Action": [0, 2], "Art": [1]}


def test_the_sentence_follows_the_numbers() -> None:
    categories = dict.fromkeys(ORDINARY, 0.5) | dict.fromkeys(DRAWN, 0.9)
    record = {"settings": {"model": "default"}, "categories": categories}
    assert "is 0.50, lower than the 0.90" in shown(record)
    turned = {kind: 1.4 - value for kind, value in categories.items()}
    assert "is 0.90, not lower than the 0.50" in shown(record | {"categories": turned})
