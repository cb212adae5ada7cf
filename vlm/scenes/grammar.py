"""The few rules of English that captions and questions share."""

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def with_article(noun: str) -> str:
    """`a circle`, `an oval`."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def plural(noun: str) -> str:
    """`circles`, `pluses`."""
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


def counted(count: int, noun: str) -> str:
    """`no circles`, `one circle`, `two circles`."""
    if count == 0:
        return f"no {plural(noun)}"
    return f"{NUMBERS[count]} {noun if count == 1 else plural(noun)}"


def there_are(count: int, noun: str) -> str:
    """`there are no circles`, `there is one circle`, `there are two circles`."""
    return f"there {'is' if count == 1 else 'are'} {counted(count, noun)}"
