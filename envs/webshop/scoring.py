"""What a purchase is worth: WebShop's dense reward (Yao et al., 2022, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rapidfuzz.fuzz import token_set_ratio
from rapidfuzz.utils import default_process

from envs.webshop.bm25 import STOP_WORDS
from envs.webshop.goals import Goal
from envs.webshop.products import Product

_COLOUR_WORDS = (
    "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo "
    "caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal "
    "dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather indigo "
    "ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha "
    "multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal "
    "rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise "
    "violet walnut wheat white wine yellow"
)
COLOURS = tuple(_COLOUR_WORDS.split())
"""The colour words of princeton-nlp/WebShop (MIT), in its order: the first that occurs in a value stands for it."""

Keywords = Callable[[str], frozenset[str]]
"""Title -> the words that say what kind of thing it is."""


def content_words(title: str) -> frozenset[str]:
    """All words of a title but stop words: the keywords of a catalogue whose nouns are not known."""
    return frozenset(default_process(title).split()) - STOP_WORDS


def matches(a: str, b: str) -> bool:
    """Whether two phrases are the same up to word order, case and small differences."""
    return round(token_set_ratio(a, b, processor=default_process)) > 85


def normalise_colour(value: str) -> str:
    """The first colour word that `value` contains, else `value`.

    Raises:
        TypeError: `value` is not text (a goal's (name, value) pair instead of its value).
    """
    if not isinstance(value, str):
        raise TypeError(f"an option value must be text, not {value!r}")
    return next((colour for colour in COLOURS if colour in value), value)


def type_factor(wanted: Product, bought: Product, keywords: Keywords) -> float:
    """1 for a product of the wanted kind, less for one of another kind, 0 when the titles share no keyword."""
    desired = keywords(wanted.title)
    title = len(desired & keywords(bought.title)) / len(desired) if desired else 0.2
    if title == 0.0:
        return 0.0
    if title < 0.1:
        return 0.1
    same = wanted.query == bought.query or len(wanted.crumbs & bought.crumbs) >= 2 or title > 0.2
    return 1.0 if same else 0.5


def attribute_hits(wanted: Iterable[str], bought: Product) -> int:
    """How many wanted attributes the product has, by its attribute list or in its texts."""
    texts = [text.lower() for text in (bought.title, " ".join(bought.bullets), bought.description)]
    return sum(
        any(attribute in text for text in texts) or any(matches(own, attribute) for own in bought.attributes)
        for attribute in wanted
    )


MODES = ("strict", "upstream")
"""How chosen options are matched with wanted ones; see `option_hits`."""


def option_hits(wanted: Iterable[tuple[str, str]], chosen: Mapping[str, str], mode: str) -> int:
    """How many wanted options were chosen: exactly (`strict`), or by WebShop's fuzzy value match (`upstream`)."""
    if mode == "strict":
        return sum(chosen.get(name) == value for name, value in wanted)
    values = [normalise_colour(value) for value in chosen.values()]
    return sum(any(matches(own, normalise_colour(value)) for own in values) for _, value in wanted)


def score(goal: Goal, bought: Product, chosen: Mapping[str, str], *, mode: str, keywords: Keywords) -> float:
    """Reward in [0, 1] of buying `bought` with the options `chosen`; 1.0 exactly when all is as told."""
    factor = type_factor(goal.product, bought, keywords)
    if factor == 0.0:
        return 0.0
    hits = attribute_hits(goal.attributes, bought) + option_hits(goal.options, chosen, mode)
    affordable = bought.price <= goal.price_upper
    return factor * (hits + affordable) / (len(goal.attributes) + len(goal.options) + 1)
