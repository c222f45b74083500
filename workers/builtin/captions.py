"""Puts a scene into words, in English or Persian, in one of the many ways people say it."""

from random import Random

from workers.builtin.scenes import COUNTS, PLACES, Scene, Thing

LANGUAGES = ("en", "fa")
JOINER = "\u200c"
HAMZA = "\u0654"

FA = {
    "red": "قرمز",
    "orange": "نارنجی",
    "yellow": "زرد",
    "green": "سبز",
    "blue": "آبی",
    "purple": "بنفش",
    "pink": "صورتی",
    "black": "سیاه",
    "white": "سفید",
    "gray": "خاکستری",
    "circle": "دایره",
    "square": "مربع",
    "triangle": "مثلث",
    "star": "ستاره",
    "heart": "قلب",
    "ring": "حلقه",
    "cross": "صلیب",
    "diamond": "لوزی",
    "small": "کوچک",
    "medium": "متوسط",
    "large": "بزرگ",
    "two": "دو",
    "three": "سه",
    "four": "چهار",
    "top": "بالا",
    "bottom": "پایین",
    "left": "سمت چپ",
    "right": "سمت راست",
    "center": "وسط",
}
FA_RELATIONS = {
    "and": ("و",),
    "left of": ("سمت چپ", "در سمت چپ"),
    "right of": ("سمت راست", "در سمت راست"),
    "above": ("بالای",),
    "below": ("زیر", "پایین"),
}
EN_RELATIONS = {
    "and": ("and",),
    "left of": ("left of", "to the left of", "on the left of"),
    "right of": ("right of", "to the right of", "on the right of"),
    "above": ("above",),
    "below": ("below",),
}
EN_PREFIXES = ("a picture of", "the picture of", "picture,")
FA_PREFIXES = ("تصویر", "تصویر از", "یک تصویر از")
JUNK = ("nice", "very", "hd", "quality", "beautiful", "زیبا", "خیلی", "ساده", "please", "of course")


def caption(scene: Scene, language: str, random: Random | None = None) -> str:
    """The scene in words; with ``random`` in one of many ways, otherwise in the plainest full one."""
    speak = _persian if language == "fa" else _english
    text = speak(scene, random or _Plain())
    if random is None:
        return text
    if random.random() < 0.06:
        text = f"{random.choice(FA_PREFIXES if language == 'fa' else EN_PREFIXES)} {text}"
    if random.random() < 0.04:
        words = text.split(" ")
        words.insert(random.choice((0, len(words))), random.choice(JUNK))
        text = " ".join(words)
    return text


class _Plain(Random):
    """Chooses the first of everything and leaves nothing out."""

    def choice(self, seq):  # type: ignore[no-untyped-def]
        return seq[0]

    def random(self) -> float:
        return 0.5


def _english(scene: Scene, random: Random) -> str:
    if scene.layout in COUNTS:
        thing = scene.things[0]
        plural = f"{thing.shape}es" if thing.shape == "cross" else f"{thing.shape}s"
        subject = f"{scene.layout} {thing.colour} {plural}"
    elif scene.layout in PLACES:
        subject = _english_thing(scene.things[0], random)
    else:
        relation = random.choice(EN_RELATIONS[scene.layout])
        first, second = (_english_thing(thing, random) for thing in scene.things)
        subject = f"{first} {relation} {second}"
    background = ""
    if not _omitted(scene.background == "white", random):
        preposition = "with" if random.random() < 0.05 else "on"
        background = f"{preposition} {_article(scene.background)} background"
    return _arrange(subject, _english_place(scene.layout, random), background, random)


def _english_thing(thing: Thing, random: Random) -> str:
    if _omitted(thing.size == "medium", random, 0.85):
        return f"{_article(thing.colour)} {thing.shape}"
    return f"a {thing.size} {thing.colour} {thing.shape}"


def _english_place(layout: str, random: Random) -> str:
    if layout not in PLACES or _omitted(layout == "center", random, 0.7):
        return ""
    if layout == "center":
        return "in the center"
    if " " in layout:
        return random.choice((f"in the {layout} corner", f"at the {layout}", f"{layout}", f"in the {layout}"))
    if layout in ("left", "right"):
        return random.choice((f"on the {layout}", f"on the {layout} side", f"at the {layout}"))
    return random.choice((f"at the {layout}", f"on the {layout}", f"at the {layout} center"))


def _article(word: str) -> str:
    return f"an {word}" if word == "orange" else f"a {word}"


def _persian(scene: Scene, random: Random) -> str:
    if scene.layout in COUNTS:
        thing = scene.things[0]
        subject = f"{FA[scene.layout]} {_linked(FA[thing.shape], random)} {FA[thing.colour]}"
    elif scene.layout in PLACES:
        subject = _persian_thing(scene.things[0], random)
    else:
        relation = random.choice(FA_RELATIONS[scene.layout])
        first, second = (_persian_thing(thing, random) for thing in scene.things)
        subject = f"{first} {relation} {second}"
    background = ""
    if not _omitted(scene.background == "white", random):
        preposition = "با" if random.random() < 0.1 else "روی"
        ground = f"پس{JOINER}زمینه" if random.random() < 0.25 else "زمینه"
        background = f"{preposition} {_linked(ground, random)} {FA[scene.background]}"
    return _arrange(subject, _persian_place(scene.layout, random), background, random)


def _persian_thing(thing: Thing, random: Random) -> str:
    words = ["یک", _linked(FA[thing.shape], random), FA[thing.colour]]
    if not _omitted(thing.size == "medium", random, 0.85):
        words.insert(2 if random.random() < 0.3 else 3, FA[thing.size])
    return " ".join(words)


def _persian_place(layout: str, random: Random) -> str:
    if layout not in PLACES or _omitted(layout == "center", random, 0.7):
        return ""
    words = " ".join(FA[word] for word in layout.split(" "))
    if " " in layout:
        return random.choice((words, f"در {words}", f"در گوشه {words}", f"گوشه {words}"))
    return random.choice((words, f"در {words}"))


def _linked(noun: str, random: Random) -> str:
    """A noun before its adjective, now and then with the written link that careful writers add."""
    if not noun.endswith("ه") or random.random() >= 0.15:
        return noun
    return noun + random.choice((JOINER + "ی", HAMZA))


def _arrange(subject: str, place: str, background: str, random: Random) -> str:
    parts = [subject, background, place] if random.random() < 0.25 else [subject, place, background]
    return " ".join(part for part in parts if part)


def _omitted(is_default: bool, random: Random, chance: float = 0.5) -> bool:
    """Whether a default goes unsaid; the plain way says the background and leaves out the rest."""
    return is_default and random.random() < chance
