"""What the demo's policy was asked and what it answered: six prompts in the shapes that trainers send, eight answers each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Prompt:
    """One group: its id, what its shape is called, the `input` of the request, and the answer of each sibling."""

    group_id: str
    shape: str
    input: Any
    answers: tuple[str, ...]


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


BREAD = Prompt(
    "bread-0001",
    "one question",
    "Why should bread dough rest before it is shaped?",
    (
        "Mixing and kneading tighten the gluten. Left alone for twenty minutes it relaxes, so the dough can be stretched into shape without tearing or springing back.",
        "Because it needs to rise. Yeast makes gas, and gas makes bread light.",
        "Two things happen while it rests: the flour takes up the last of the water, which makes the dough less sticky, and the gluten network relaxes, which makes it extensible. Skip the rest and the loaf shrinks while you roll it.",
        "Resting is optional. Professional bakers do it out of habit, but you can shape the dough at once if you knead long enough.",
        "Think of a rubber band that you have just wound tight. Gluten behaves like that after kneading. Give it time and the tension goes out of it.",
        "Enzymes in the flour begin to cut starch into sugars, which feeds the yeast and browns the crust. The rest also relaxes the gluten, so shaping is easier.",
        "So that the oven has time to get hot.",
        "A rest of 15 to 30 minutes lets the gluten relax, so that the dough holds the shape you give it. Cover it meanwhile, or the surface dries into a skin that cracks in the oven.",
    ),
)

BICYCLE = Prompt(
    "support-0417",
    "with a system",
    [
        {"role": "system", "content": "You answer customers of a bicycle workshop. Be brief, kind and concrete."},
        _user("My chain jumps when I pedal hard uphill. It is a week old. Did you fit the wrong one?"),
    ],
    (
        "Sorry about that! A new chain on a worn cassette skips just as you describe, most of all under load. Bring it in and we will measure the cassette; if we missed the wear, the labour is on us.",
        "The chain is the correct one. Please ride it for a few weeks, it will settle.",
        "That is annoying on a climb. The likeliest cause is not the chain but the sprockets: the old chain wore them to its own length, and the new one rides up the teeth. Could you stop by this week? It takes ten minutes to check.",
        "It may be the cassette, the derailleur hanger, the cable tension, the freehub or the chain itself. Please check each in turn and report back with your findings.",
        "We are sorry. Please bring the bicycle and the receipt to the workshop.",
        "Most likely your cassette is worn and the new chain does not sit in its teeth. You can see it: if the teeth look like shark fins, that is it. Until then stay off the gears that skip, please, a jumping chain can throw you over the bars.",
        "No, we fit only original parts, so the fault must lie with how you shift.",
        "Thank you for telling us. We will look at it for free: today until six, or tomorrow from eight. My guess is wear on the two or three sprockets that you use most.",
    ),
)

TRAIN = Prompt(
    "travel-0090",
    "multi-turn",
    [
        _user("I have four hours between trains in Cologne on a Sunday. What should I see?"),
        _assistant(
            "The cathedral is right outside the station. Would you rather climb its tower or visit a museum nearby?"
        ),
        _user("Museum, but I have a large suitcase and my knees are bad."),
    ],
    (
        "Leave the suitcase in a locker in the station hall. The Ludwig Museum is four level minutes away, has lifts to every floor and enough Picasso for two hours. Have coffee on the Rhine terrace after that.",
        "Then take the Ludwig Museum: modern art, next to the station, lifts and benches everywhere. Large cases do not fit its cloakroom, so use the automatic lockers by the main entrance of the station first.",
        "You could climb the tower slowly. There are 533 steps, but the view is worth it.",
        "The Chocolate Museum is lovely. It is a walk of twenty minutes along the river, or one stop and a bit by bus.",
        "On Sundays museums are closed, so I would stay in the station.",
        "Luggage first: station lockers, large size. Museum second: the Ludwig, since it is the nearest and has no stairs that you must take. Time: about two hours there, thirty minutes for the cathedral from the inside, and still an hour to spare.",
        "The Roman-Germanic collection has moved to the Belgian House at Neumarkt, two stops by underground with a lift. Quiet on Sundays, and small enough for an hour.",
        "Ask the information desk at the station about accessible museums.",
    ),
)

NOTICE = Prompt(
    "summary-2203",
    "parts of text",
    [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Summarise the notice below for the tenants in two sentences."},
                {
                    "type": "input_text",
                    "text": "On Tuesday the water supply of numbers 12 to 18 will be interrupted from 8 until about 13 o'clock, because the riser in the cellar of number 14 is being replaced. The lift stays in service. Residents are asked to close all taps before leaving home and to let the cold water run for two minutes afterwards; brown colour is harmless.",
                },
            ],
        }
    ],
    (
        "There is no water in numbers 12 to 18 on Tuesday from 8 to about 13 o'clock while a pipe is replaced. Close your taps before you leave, and let the cold water run for two minutes afterwards, even if it looks brown.",
        "The riser in number 14 is being replaced. The lift stays in service.",
        "Water will be off on Tuesday morning at numbers 12 to 18, until about 13 o'clock. Shut all taps, and afterwards run the cold one for two minutes; brown water does no harm.",
        "On Tuesday works take place. Please behave accordingly.",
        "No water on Tuesday, 8 to 13, numbers 12 to 18: a riser is exchanged. Please shut the taps. Afterwards run them for two minutes. Brown water is harmless. The lift works.",
        "Dear tenants, the management regrets to inform you that the supply of water will be interrupted for technical reasons, and it thanks you for your patience.",
        "Tuesday from 8 to about 13 o'clock, numbers 12 to 18 have no water, because a pipe in the cellar is replaced; the lift works as usual. Keep taps closed while you are out, then flush with cold water for two minutes until it runs clear.",
        "The water will be brown on Tuesday. It is harmless, so you may drink it.",
    ),
)

CODE = Prompt(
    "code-5150",
    "code, 3 turns",
    [
        _user("def mean(xs):\n    return sum(xs) / len(xs)\n\nIs this fine?"),
        _assistant("It fails with ZeroDivisionError when the list is empty. What should the mean of nothing be?"),
        _user("None. And it should take generators, too."),
    ],
    (
        "def mean(xs):\n    xs = list(xs)\n    return sum(xs) / len(xs) if xs else None",
        "def mean(xs):\n    total, count = 0, 0\n    for x in xs:\n        total += x\n        count += 1\n    return total / count if count else None\n\nOne pass, constant memory, and an empty iterable gives None.",
        "def mean(xs):\n    try:\n        return sum(xs) / len(xs)\n    except Exception:\n        return None",
        "Use statistics.fmean, which takes any iterable, and catch its StatisticsError:\n\ndef mean(xs):\n    try:\n        return statistics.fmean(xs)\n    except statistics.StatisticsError:\n        return None",
        "def mean(xs):\n    if not xs:\n        return None\n    return sum(xs) / len(xs)",
        "A generator has no len, so it must be gathered or counted. Counting needs no memory:\n\ndef mean(xs):\n    n, total = 0, 0.0\n    for n, x in enumerate(xs, start=1):\n        total += x\n    return total / n if n else None",
        "Convert it with numpy.mean(list(xs)); it returns nan for an empty list, which is close to None.",
        "def mean(xs: Iterable[float]) -> float | None:\n    values = tuple(xs)\n    return math.fsum(values) / len(values) if values else None\n\nfsum keeps the rounding error of long sums away.",
    ),
)

HARBOUR = Prompt(
    "verse-0031",
    "one question",
    [_user("Write two lines about a harbour at dawn. No rhyme.")],
    (
        "The cranes still sleep with folded necks;\na gull walks the length of the quay as if it were paid to.",
        "Morning spills over masts and ropes,\nand hope floats in like small white boats.",
        "First light finds the ropes before the boats.\nSomebody coughs, somebody starts a diesel.",
        "The harbour wakes. The sun comes up.\nThe ships are there. The day begins.",
        "Grey water, grey hulls, one red buoy\nnodding yes to everything the tide proposes.",
        "O harbour, mother of the fleet,\nthe dawn has come to kiss thy feet!",
        "Fog has rubbed out the far pier.\nThe near one holds on to its lamps a little longer.",
        "At dawn the harbour smells of tar and coffee;\nthe night shift hands the horizon over and goes home.",
    ),
)

PROMPTS = (BREAD, BICYCLE, TRAIN, NOTICE, CODE, HARBOUR)
