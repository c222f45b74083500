"""The words of the two languages: each concept with every English and Persian word that means it."""

CONCEPTS: dict[str, tuple[str, ...]] = {
    "red": ("red", "قرمز", "سرخ"),
    "orange": ("orange", "نارنجی"),
    "yellow": ("yellow", "زرد"),
    "green": ("green", "سبز"),
    "blue": ("blue", "آبی"),
    "purple": ("purple", "violet", "بنفش"),
    "pink": ("pink", "صورتی"),
    "black": ("black", "سیاه", "مشکی"),
    "white": ("white", "سفید"),
    "gray": ("gray", "grey", "خاکستری", "طوسی"),
    "circle": ("circle", "circles", "دایره", "disc"),
    "square": ("square", "squares", "مربع"),
    "triangle": ("triangle", "triangles", "مثلث"),
    "star": ("star", "stars", "ستاره"),
    "heart": ("heart", "hearts", "قلب"),
    "ring": ("ring", "rings", "حلقه"),
    "cross": ("cross", "crosses", "صلیب"),
    "diamond": ("diamond", "diamonds", "rhombus", "لوزی"),
    "small": ("small", "little", "tiny", "کوچک"),
    "medium": ("medium", "متوسط"),
    "large": ("large", "big", "بزرگ"),
    "a": ("a", "an", "one", "1", "یک", "۱"),
    "two": ("two", "2", "دو", "۲"),
    "three": ("three", "3", "سه", "۳"),
    "four": ("four", "4", "چهار", "۴"),
    "top": ("top", "upper", "بالا"),
    "bottom": ("bottom", "lower", "پایین"),
    "left": ("left", "چپ"),
    "right": ("right", "راست"),
    "center": ("center", "centre", "middle", "وسط", "مرکز"),
    "above": ("above", "over", "بالای"),
    "below": ("below", "under", "زیر"),
    "and": ("and", "و"),
    "on": ("on", "روی"),
    "background": ("background", "backdrop", "زمینه"),
    "side": ("side", "سمت", "طرف"),
    "corner": ("corner", "گوشه"),
    "in": ("in", "در"),
    "at": ("at",),
    "the": ("the",),
    "of": ("of", "از"),
    "to": ("to",),
    "with": ("with", "با"),
    "picture": ("picture", "drawing", "image", "photo", "تصویر", "عکس", "نقاشی"),
    "پس": ("پس",),
    "ی": ("ی",),
    "joiner": ("\u200c", "\u0654"),
    "comma": (",", ".", "،"),
}
"""The first word of each language is the usual one; every word has a token of its own, and all words of a
concept share one embedding, so that a synonym, a plural or a digit cannot be misunderstood."""

ARABIC_FORMS = str.maketrans({"ی": "ي", "ک": "ك", "۰": "٠", "۱": "١", "۲": "٢", "۳": "٣", "۴": "٤"})
"""Letters of Arabic keyboards that many Persian texts hold in place of the Persian ones."""


def meanings() -> dict[str, str]:
    """Every word, Arabic spellings included, with its concept."""
    found: dict[str, str] = {}
    for concept, words in CONCEPTS.items():
        for word in words:
            found[word] = concept
            found[word.translate(ARABIC_FORMS)] = concept
    return found
