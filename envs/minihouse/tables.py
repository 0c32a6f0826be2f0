"""What a household is made of: kinds of rooms, receptacles and objects, what can be done to them and what holds what."""

from __future__ import annotations

from dataclasses import dataclass

TOOLS = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
"""What is done to an object -> the receptacle kind that does it."""

KNIVES = frozenset({"knife", "butterknife"})
"""Object kinds that slice."""

OPENABLE = frozenset({"cabinet", "drawer", "fridge", "microwave", "safe", "laundryhamper"})
"""Receptacle kinds with a door or a lid; they are shut when an episode starts, a few excepted."""


@dataclass(frozen=True, slots=True)
class Room:
    """One kind of room."""

    base: int
    """Scene numbers of this kind are `base + 1 .. base + NUM_SCENES`."""
    receptacles: dict[str, tuple[int, int]]
    """Receptacle kind -> fewest and most of it in one scene."""
    objects: tuple[str, ...]
    """Object kinds found here."""


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """One kind of object."""

    abilities: frozenset[str]
    """Subset of clean, heat, cool, slice, light; everything without `light` can be picked up."""
    holders: frozenset[str]
    """Receptacle kinds it can stand in or on."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NUM_SCENES = 30
"""Scenes of each room kind."""

ROOMS = {
    "kitchen": Room(
        base=0,
        receptacles={
            "cabinet": (3, 7), "drawer": (2, 5), "countertop": (1, 3), "sinkbasin": (1, 1), "fridge": (1, 1),
            "microwave": (1, 1), "stoveburner": (2, 4), "toaster": (1, 1), "coffeemachine": (1, 1),
            "garbagecan": (1, 1), "diningtable": (0, 2), "shelf": (0, 3),
        },
        objects=_words(
            "apple bread egg lettuce potato tomato bowl cup mug plate pan pot winebottle fork knife butterknife spoon "
            "spatula ladle kettle dishsponge peppershaker saltshaker glassbottle soapbottle papertowelroll"
        ),
    ),
    "living": Room(
        base=200,
        receptacles={
            "sofa": (1, 1), "armchair": (1, 3), "coffeetable": (1, 2), "sidetable": (1, 3), "tvstand": (1, 1),
            "shelf": (1, 4), "drawer": (1, 4), "cabinet": (0, 3), "garbagecan": (1, 1), "safe": (0, 1),
            "ottoman": (0, 1), "diningtable": (0, 1),
        },
        objects=_words(
            "box book newspaper remotecontrol creditcard keychain watch laptop pillow vase statue candle tissuebox "
            "wateringcan pen pencil desklamp floorlamp"
        ),
    ),
    "bedroom": Room(
        base=300,
        receptacles={
            "bed": (1, 1), "desk": (1, 2), "drawer": (2, 6), "dresser": (0, 1), "shelf": (1, 4), "sidetable": (1, 2),
            "garbagecan": (1, 1), "laundryhamper": (0, 1), "safe": (0, 1), "armchair": (0, 1),
        },
        objects=_words(
            "book pen pencil cd cellphone alarmclock creditcard keychain laptop mug bowl pillow teddybear basketball "
            "baseballbat tennisracket box cloth desklamp"
        ),
    ),
    "bathroom": Room(
        base=400,
        receptacles={
            "sinkbasin": (1, 2), "bathtubbasin": (0, 1), "toilet": (1, 1), "cabinet": (2, 4), "countertop": (1, 1),
            "drawer": (0, 3), "shelf": (0, 2), "garbagecan": (1, 1), "towelholder": (1, 1), "handtowelholder": (1, 2),
            "toiletpaperhanger": (1, 1), "cart": (0, 1),
        },
        objects=_words(
            "soapbar soapbottle cloth handtowel towel toiletpaper plunger scrubbrush spraybottle candle tissuebox "
            "dishsponge"
        ),
    ),
}  # fmt: skip

_FOOD = "countertop diningtable fridge sinkbasin microwave garbagecan"
_WARE = "countertop diningtable cabinet shelf sinkbasin"
_CUTLERY = "countertop diningtable drawer sinkbasin"
_SURFACES = "countertop coffeetable sidetable diningtable desk dresser tvstand shelf cart"
_SMALL = f"{_SURFACES} drawer"
_WASH = "countertop cabinet sinkbasin bathtubbasin shelf cart drawer"

_OBJECTS = {
    "apple": ("clean heat cool slice", _FOOD),
    "bread": ("heat cool slice", "countertop diningtable fridge microwave garbagecan"),
    "egg": ("clean heat cool", _FOOD),
    "lettuce": ("clean cool slice", "countertop diningtable fridge sinkbasin garbagecan"),
    "potato": ("clean heat cool slice", _FOOD),
    "tomato": ("clean heat cool slice", _FOOD),
    "bowl": ("clean cool", f"{_WARE} fridge desk"),
    "cup": ("clean heat cool", f"{_WARE} fridge microwave"),
    "mug": ("clean heat cool", f"{_WARE} fridge microwave coffeemachine desk"),
    "plate": ("clean heat cool", f"{_WARE} fridge microwave"),
    "pan": ("clean cool", "countertop diningtable cabinet sinkbasin stoveburner fridge"),
    "pot": ("clean cool", "countertop diningtable cabinet sinkbasin stoveburner fridge"),
    "kettle": ("clean", "countertop cabinet sinkbasin stoveburner shelf"),
    "winebottle": ("cool", "countertop diningtable cabinet fridge garbagecan"),
    "glassbottle": ("", "countertop diningtable cabinet garbagecan shelf"),
    "fork": ("clean", _CUTLERY),
    "knife": ("clean", _CUTLERY),
    "butterknife": ("clean", _CUTLERY),
    "spoon": ("clean", _CUTLERY),
    "spatula": ("clean", _CUTLERY),
    "ladle": ("clean", _CUTLERY),
    "dishsponge": ("clean", _WASH),
    "peppershaker": ("", "countertop diningtable cabinet drawer shelf"),
    "saltshaker": ("", "countertop diningtable cabinet drawer shelf"),
    "papertowelroll": ("", "countertop diningtable garbagecan"),
    "soapbottle": ("", f"{_WASH} toilet garbagecan"),
    "soapbar": ("clean", f"{_WASH} toilet garbagecan"),
    "cloth": ("clean", f"{_WASH} laundryhamper bed"),
    "handtowel": ("", "handtowelholder countertop cabinet cart"),
    "towel": ("", "towelholder bathtubbasin countertop cabinet cart"),
    "toiletpaper": ("", "toiletpaperhanger toilet cabinet countertop drawer garbagecan"),
    "plunger": ("", "cabinet cart countertop"),
    "scrubbrush": ("", "cabinet cart countertop toilet"),
    "spraybottle": ("", "cabinet countertop toilet garbagecan shelf"),
    "candle": ("", f"{_SMALL} toilet cabinet"),
    "tissuebox": ("", f"{_SMALL} toilet garbagecan"),
    "box": ("", "coffeetable sidetable diningtable desk dresser sofa ottoman cabinet"),
    "book": ("", f"{_SMALL} bed sofa"),
    "newspaper": ("", "coffeetable sidetable diningtable sofa armchair ottoman drawer garbagecan"),
    "remotecontrol": ("", f"{_SMALL} sofa armchair ottoman"),
    "creditcard": ("", f"{_SMALL} armchair"),
    "keychain": ("", f"{_SMALL} safe sofa armchair"),
    "watch": ("", f"{_SMALL} safe"),
    "laptop": ("", "coffeetable sidetable diningtable desk bed sofa armchair ottoman"),
    "pillow": ("", "bed sofa armchair ottoman"),
    "vase": ("", f"{_SURFACES} cabinet safe"),
    "statue": ("", f"{_SURFACES} safe"),
    "wateringcan": ("", "coffeetable sidetable diningtable cabinet tvstand"),
    "pen": ("", f"{_SMALL} garbagecan"),
    "pencil": ("", f"{_SMALL} garbagecan"),
    "cd": ("", f"{_SMALL} safe garbagecan"),
    "cellphone": ("", f"{_SMALL} bed safe"),
    "alarmclock": ("", "desk dresser shelf sidetable"),
    "teddybear": ("", "bed desk dresser armchair"),
    "basketball": ("", "bed desk dresser armchair laundryhamper"),
    "baseballbat": ("", "bed desk dresser armchair"),
    "tennisracket": ("", "bed desk dresser armchair"),
    "desklamp": ("light", "desk dresser sidetable tvstand shelf"),
    "floorlamp": ("light", "sidetable tvstand coffeetable"),
}

OBJECTS = {
    kind: ObjectKind(frozenset(abilities.split()), frozenset(holders.split()))
    for kind, (abilities, holders) in _OBJECTS.items()
}
"""Object kind -> what can be done to it and what can hold it."""
