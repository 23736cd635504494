from solution import add


def test_small_numbers() -> None:
    assert add(2, 3) == 5


def test_negative_numbers() -> None:
    assert add(-1, 1) == 0
