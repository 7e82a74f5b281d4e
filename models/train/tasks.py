"""The tasks: questions, step-by-step thinking and answers, seeded; training and held-out questions never meet.

A scratchpad is written so that every step needs one look: numbers are copied with a letter before each digit ("d4c8b2a1",
a the units), a column asks for digits by their letter, and what a step produced stands where the next one finds it.
RAW (\x01) encloses what is written in single characters.

The thinking ends in paragraphs separated by blank lines, each of which ends in "So ANSWER.": the first reaches the
answer, 0 to 4 more check it again. In one problem of eight the first answer holds a slip, which the next paragraph
corrects: stopping early then costs the answer, and stopping late only time.

A question is held out when the hash of its content (operands or word, not its wording) says so.
"""
import os
import random
import zlib

from tokenizer import RAW

HELD_OUT_IN = 10  # one of so many contents is held out
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
INDEX = "0123456789ABCDEF"  # letters of a word are numbered with one character each

with open(os.path.join(os.path.dirname(__file__), "words.txt")) as f:
    WORDS = sorted(set(f.read().lower().split()))


# What training begins with: 0 = short numbers and words, no second look at an answer; 1 = everything. Copying and looking up
# are learned soonest where there is little to look through. Held-out problems are always asked at 1.
level = 1.0


def at_most(small, large):
    """A limit that grows with the level."""
    return small + int((large - small) * level + 1e-9)


def held_out(key):
    return zlib.crc32(repr(key).encode()) % HELD_OUT_IN == 0


class Problem:
    def __init__(self, task, key, question, steps, answer, hard=False, raw=False):
        self.task, self.key, self.question, self.steps = task, key, question, steps
        self.answer, self.hard, self.raw = answer, hard, raw


# --- written arithmetic ---------------------------------------------------------------------------------------------


def label(digits, first="a"):
    n = len(digits)
    return "".join(chr(ord(first) + n - 1 - i) + d for i, d in enumerate(digits))


def operands(a, b):
    w = max(len(str(a)), len(str(b)))
    sa, sb = str(a).zfill(w), str(b).zfill(w)
    return w, sa, sb, label(sa) + "\n" + label(sb, "A") + "\n"


def add(a, b):
    """Scratchpad of a+b and the number of its carries."""
    w, sa, sb, text = operands(a, b)
    text, carry, carries, digits = f"{a}+{b}\n" + text, 0, 0, ""
    for k in range(w):
        x, y = int(sa[-1 - k]), int(sb[-1 - k])
        s = x + y + carry
        text += f"{chr(97 + k)}{x}+{y}+{carry}={s:02d}\n"
        carry, digits = s // 10, str(s % 10) + digits
        carries += carry
    if carry:
        digits = "1" + digits
    return text + "=" + label(digits), carries


def subtract(a, b):
    w, sa, sb, text = operands(a, b)
    text, borrow, borrows, digits = f"{a}-{b}\n" + text, 0, 0, ""
    for k in range(w):
        x, y = int(sa[-1 - k]), int(sb[-1 - k])
        d = x - y - borrow
        text += f"{chr(97 + k)}{x}-{y}-{borrow}={int(d < 0)}{d % 10}\n"
        borrow = int(d < 0)
        digits = str(d % 10) + digits
        borrows += borrow
    if borrow:  # a < b: the other way round, with a minus sign
        again, n = subtract(b, a)
        return text + "borrow left, so minus\n" + again, borrows + n
    return text + "=" + label(digits), borrows


def times_digit(a, d):
    text, carry, carries, digits = f"{a}*{d}\n{label(str(a))}\n", 0, 0, ""
    for k, c in enumerate(reversed(str(a))):
        p = int(c) * d
        s = p + carry
        text += f"{chr(97 + k)}{c}*{d}={p:02d}+{carry}={s:02d}\n"
        carry, digits = s // 10, str(s % 10) + digits
        carries += carry > 0
    if carry:
        digits = str(carry) + digits
    return text + "=" + label(digits), carries


def times_two_digits(a, b):
    tens, units = divmod(b, 10)
    one, n = times_digit(a, units)
    two, m = times_digit(a, tens)
    three, k = add(a * units, a * tens * 10)
    return f"{one} {a * units}\n{two} {a * tens} {a * tens * 10}\n{three}", n + m + k


def raw(s):
    return RAW + s + RAW


def number(rng, digits):
    digits = min(digits, at_most(2, 5))
    if digits > 1 and rng.random() < 0.25:  # the same digits again and again: to copy these, counting is needed
        pool = rng.sample("0123456789", 2)
        first = rng.choice([d for d in pool if d != "0"])
        return int(first + "".join(rng.choice(pool) for _ in range(digits - 1)))
    return rng.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits)


PLUS = ["What is {a} + {b}?", "{a} + {b}", "{a}+{b}", "{a} + {b} = ?", "{a}+{b}=", "What is {a}+{b}?", "Compute {a} + {b}.", "Calculate {a} + {b}.", "Add {a} and {b}.",
        "What is the sum of {a} and {b}?", "How much is {a} plus {b}?", "What is {a} plus {b}?", "Please add {a} and {b}.", "Can you add {a} to {b}?"]
MINUS = ["What is {a} - {b}?", "{a} - {b}", "{a}-{b}", "{a} - {b} = ?", "{a}-{b}=", "What is {a}-{b}?", "Compute {a} - {b}.", "Calculate {a} - {b}.", "Subtract {b} from {a}.",
         "What is the difference of {a} and {b}?", "How much is {a} minus {b}?", "What is {a} minus {b}?", "Please subtract {b} from {a}."]
TIMES = ["What is {a} * {b}?", "{a} * {b}", "{a}*{b}", "{a} * {b} = ?", "{a} x {b}", "What is {a} x {b}?", "Compute {a} * {b}.", "Calculate {a} * {b}.", "Multiply {a} by {b}.",
         "What is the product of {a} and {b}?", "How much is {a} times {b}?", "What is {a} times {b}?", "Please multiply {a} and {b}."]


def ask_add(rng):
    n = rng.choice([1, 2, 2, 3, 3, 4, 4, 4, 5, 5, 5])
    a, b = number(rng, n), number(rng, n if rng.random() < 0.6 else rng.randint(1, 5))
    if rng.random() < 0.5:
        a, b = b, a
    steps, carries = add(a, b)
    return Problem("add", ("add", min(a, b), max(a, b)), rng.choice(PLUS).format(a=a, b=b), steps, str(a + b), carries > 1)


def ask_subtract(rng):
    n = rng.choice([1, 2, 2, 3, 3, 4, 4, 4, 5, 5, 5])
    a, b = number(rng, n), number(rng, n if rng.random() < 0.6 else rng.randint(1, n))
    if (a < b) != (rng.random() < 0.08):
        a, b = b, a
    steps, borrows = subtract(a, b)
    return Problem("subtract", ("sub", a, b), rng.choice(MINUS).format(a=a, b=b), steps, str(a - b), borrows > 1)


def ask_times_digit(rng):
    a, d = number(rng, rng.choice([1, 2, 2, 3, 3, 3, 4, 4, 4])), rng.randint(0 if rng.random() < 0.1 else 2, 9)
    q = rng.choice(TIMES)
    steps, carries = times_digit(a, d)
    question = q.format(a=a, b=d) if rng.random() < 0.7 or a < 10 else q.format(a=d, b=a)
    return Problem("times-digit", ("mul", min(a, d), max(a, d)), question, steps, str(a * d), carries > 2)


def ask_times_two_digits(rng):
    a, b = rng.randint(10, 99), rng.randint(10, 99)
    steps, carries = times_two_digits(a, b)
    return Problem("times-2x2", ("mul", min(a, b), max(a, b)), rng.choice(TIMES).format(a=a, b=b), steps, str(a * b), carries > 4)


# --- order ----------------------------------------------------------------------------------------------------------


def ask_compare(rng):
    n = rng.choice([1, 2, 3, 3, 4, 4, 5, 5])
    a, b = number(rng, n), number(rng, n if rng.random() < 0.8 else rng.randint(1, 5))
    if a > 9 and rng.random() < 0.5:  # close ones
        s = list(str(a))
        k = rng.randrange(len(s))
        for i in range(k, len(s)):
            s[i] = rng.choice("123456789")
        b = int("".join(s))
    larger = rng.random() < 0.6
    q = rng.choice(["Which is {w}, {a} or {b}?", "Which number is {w}: {a} or {b}?", "What is {w}, {a} or {b}?", "Which of {a} and {b} is {w}?",
                    "Compare {a} and {b}: which is {w}?", "{a} or {b}, which is {w}?"])
    word = rng.choice(["larger", "bigger", "greater"] if larger else ["smaller", "less"])
    w, sa, sb, text = operands(a, b)
    text = ("max " if larger else "min ") + f"{a},{b}\n" + text
    for k in range(w):
        rel = "<" if sa[k] < sb[k] else ">" if sa[k] > sb[k] else "="
        text += f"{chr(97 + w - 1 - k)}{sa[k]}{rel}{sb[k]}\n"
        if rel != "=":
            break
    text += "=" if rel == "=" else "=" + label(sa) if (rel == ">") == larger else "=" + label(sb, "A")
    answer = "equal" if a == b else str(max(a, b) if larger else min(a, b))
    return Problem("compare", ("cmp", min(a, b), max(a, b)), q.format(w=word, a=a, b=b), text, answer, k > 1)


def ask_sort(rng):
    n = rng.choice([3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 6])
    n = min(n, at_most(3, 6))
    top = rng.choice([99, 999, 999, 999])
    numbers = [rng.randint(1, top) if rng.random() < 0.8 else max(1, number(rng, len(str(top)))) for _ in range(n)]
    if rng.random() < 0.3:  # close ones
        i = rng.randrange(1, n)
        numbers[i] = max(1, min(999, numbers[i - 1] + rng.randint(-9, 9)))
    up = rng.random() < 0.7
    listed = ", ".join(map(str, numbers))
    if up:
        q = rng.choice(["Sort {l}.", "Sort these numbers: {l}", "Sort the numbers {l}.", "Sort {l} from small to large.", "Put {l} in ascending order.", "Sort in ascending order: {l}",
                        "Order these numbers from smallest to largest: {l}", "sort {l}"])
    else:
        q = rng.choice(["Sort {l} from large to small.", "Put {l} in descending order.", "Sort in descending order: {l}", "Order these numbers from largest to smallest: {l}",
                        "Sort {l}, largest first."])
    names = [chr(97 + i) for i in range(n)]
    padded = {c: f"{v:03d}" for c, v in zip(names, numbers)}
    text = ("min\n" if up else "max\n") + "".join(c + padded[c] for c in names) + "\n"
    rest, done, ties = list(names), [], 0
    while rest:
        text += "".join(rest) + "|" + "".join(done) + ":"
        best = rest[0]
        for c in rest[1:]:
            text += best + c
            for x, y in zip(padded[best], padded[c]):
                rel = "<" if x < y else ">" if x > y else "="
                text += x + rel + y
                if rel != "=":
                    break
                ties += 1
            if rel != "=" and (rel == ">") == up:
                best = c
        text += ";" + best + "\n"
        rest.remove(best)
        done.append(best)
    text += "|" + "".join(done) + "\n=" + "".join(c + padded[c] for c in done)
    answer = ", ".join(str(int(padded[c])) for c in done)
    return Problem("sort", ("sort", tuple(sorted(numbers))), q.format(l=listed), text, answer, ties > 1)


# --- letters --------------------------------------------------------------------------------------------------------

CONSONANTS = "bcdfghjklmnpqrstvwxyz" + "bcdfglmnprst" * 3
VOWELS = "aeiou" + "aeio" * 2


def word(rng, longest):
    longest = at_most(4, longest)
    r = rng.random()
    if r < 0.35:
        w = rng.choice(WORDS)
    elif r < 0.75:
        w = ""
        while len(w) < rng.randint(2, 10):
            w += rng.choice(CONSONANTS) + rng.choice(VOWELS) + (rng.choice(CONSONANTS) if rng.random() < 0.4 else "")
            if rng.random() < 0.2:
                w += w[-1]
    else:
        letters = "abcdefghijklmnopqrstuvwxyz"
        if r > 0.9:  # few different ones
            letters = rng.sample(letters, rng.randint(2, 3))
        w = "".join(rng.choice(letters) for _ in range(rng.randint(3, 9)))
    return w[:longest]


def ask_count(rng):
    w = word(rng, 12)
    c = rng.choice(w) if rng.random() < 0.85 else rng.choice("abcdefghijklmnopqrstuvwxyz")
    if rng.random() < 0.4:
        c = max(w, key=w.count)
    q = rng.choice(["How many {c}'s are in {w}?", "How many {c}'s are in the word {w}?", "how many {c}'s are in {w}", "How many {c} are in {w}?", "How many letters {c} are in {w}?",
                    "How many times does {c} occur in {w}?", "Count the letter {c} in {w}.", "How often does the letter {c} appear in the word {w}?", "Count the {c}'s in \"{w}\".",
                    "How many {c}'s are there in '{w}'?"])
    n, parts = 0, []
    for i, x in enumerate(w):
        n += x == c
        parts.append(f"{INDEX[i]}{x}{n}")
    return Problem("count", ("word", w), q.format(c=c, w=w), c + "\n" + " ".join(parts), str(n), len(w) > 6)


def ask_reverse(rng):
    w = word(rng, 12)
    q = rng.choice(["Reverse the word {w}.", "Reverse {w}.", "Reverse {w}", "Spell {w} backwards.", "What is {w} backwards?", "Write {w} backwards.", "What is {w} spelled backwards?",
                    "Please reverse the word \"{w}\".", "Reverse '{w}'.", "How do you write {w} in reverse?"])
    there = "".join(INDEX[i] + x for i, x in enumerate(w))
    back = "".join(INDEX[i] + w[i] for i in reversed(range(len(w))))
    return Problem("reverse", ("word", w), q.format(w=w), there + "\n" + back, w[::-1], len(w) > 6, raw=True)


# --- calendar -------------------------------------------------------------------------------------------------------


def remainder(n, m):
    """Long division, digit by digit: "04-00=4 45-42=3" for 45 mod 7."""
    parts, r = [], 0
    for d in str(n):
        v = 10 * r + int(d)
        r = v % m
        parts.append(f"{v:02d}-{v - r:02d}={r}")
    return " ".join(parts), r


def steps(names, start, n, forward):
    m = len(names)
    line, r = remainder(n, m)
    walk = "".join(f" {names[(start + (k if forward else -k)) % m]}{k}" for k in range(r + 1))
    sign = "+" if forward else "-"
    return f"{RAW} {names[start]}{RAW}{sign}{n}\n{line}\n{RAW}{walk}{RAW}", names[(start + (r if forward else -r)) % m], r


def ask_weekday(rng):
    start, forward = rng.randrange(7), rng.random() < 0.65
    n = rng.choice([rng.randint(1, 9), rng.randint(1, 30), rng.randint(1, 99), rng.randint(100, 365)][: at_most(2, 4)])
    d = DAYS[start]
    if forward:
        q = rng.choice(["What day is {n} days after {d}?", "What day comes {n} days after {d}?", "Today is {d}. What day is it in {n} days?", "If today is {d}, what day is it in {n} days?",
                        "It is {d}. Which weekday is it {n} days later?", "Which day is {n} days after {d}?"])
    else:
        q = rng.choice(["What day is {n} days before {d}?", "Today is {d}. What day was it {n} days ago?", "If today is {d}, what day was it {n} days ago?", "Which day is {n} days before {d}?"])
    text, answer, r = steps(DAYS, start, n, forward)
    return Problem("weekday", ("day", start, n, forward), q.format(n=n, d=d), text, answer, n > 30)


def ask_month(rng):
    start, forward = rng.randrange(12), rng.random() < 0.65
    n = rng.choice([rng.randint(1, 11), rng.randint(1, 24), rng.randint(12, 60)])
    d = MONTHS[start]
    if forward:
        q = rng.choice(["Which month is {n} months after {d}?", "What month is {n} months after {d}?", "It is {d}. Which month is it in {n} months?", "What month comes {n} months after {d}?",
                        "If it is {d} now, what month is it in {n} months?"])
    else:
        q = rng.choice(["Which month is {n} months before {d}?", "What month is {n} months before {d}?", "It is {d}. Which month was it {n} months ago?", "If it is {d} now, what month was it {n} months ago?"])
    text, answer, r = steps(MONTHS, start, n, forward)
    return Problem("month", ("month", start, n, forward), q.format(n=n, d=d), text, answer, n > 24)


# --- stories --------------------------------------------------------------------------------------------------------

NAMES = "Ann Ben Tom Lisa Sam Eva Max Mia Paul Sara Leo Nina Jack Emma Omar Lena Ravi Zoe Kofi Yuki".split()
THINGS = "apples pens books coins cards stones shells eggs stamps marbles cookies balls".split()
BOXES = "boxes bags baskets packs".split()

# (the operations, wordings). x is what there is first; y and z follow in the order in which they are used.
STORIES = [
    ("+-", ["{p} has {x} {t}. {P} buys {y} more and gives {z} to {q}. How many {t} does {p} have now?",
            "{p} has {x} {t}, finds {y} more and then loses {z}. How many {t} are left?",
            "There are {x} {t} on a table. {p} adds {y} and {q} takes {z} away. How many {t} are there?"]),
    ("-+", ["{p} has {x} {t}. {P} gives {y} to {q} and buys {z} more. How many {t} does {p} have now?",
            "{p} had {x} {t}, lost {y} and then found {z}. How many {t} does {p} have?",
            "There are {x} {t} in a box. {p} takes {y} out and {q} puts {z} in. How many {t} are there?"]),
    ("++", ["{p} has {x} {t}. {q} gives {p} {y} and {r} gives {p} {z} more. How many {t} does {p} have now?",
            "{p} has {x} {t}, {q} has {y} and {r} has {z}. How many {t} do they have together?"]),
    ("--", ["{p} has {x} {t}. {P} gives {y} to {q} and {z} to {r}. How many {t} does {p} have left?",
            "There are {x} {t} in a shop. {p} buys {y} and {q} buys {z}. How many {t} are left?"]),
    ("*+", ["{p} has {y} {b} with {x} {t} each and {z} more {t}. How many {t} does {p} have?",
            "{p} buys {y} {b} of {x} {t} and finds {z} more. How many {t} does {p} have?"]),
    ("*-", ["{p} has {y} {b} with {x} {t} each and gives {z} {t} to {q}. How many {t} does {p} have left?",
            "{p} buys {y} {b} of {x} {t} and loses {z}. How many {t} are left?"]),
]


def ask_story(rng):
    ops, wordings = rng.choice(STORIES)
    while True:
        x, y, z = rng.randint(2, 99), rng.randint(2, 60), rng.randint(2, 60)
        if ops[0] == "*":
            x, y = rng.randint(2, 40), rng.randint(2, 9)
        value, text, trouble = x, [], 0
        for op, v in zip(ops, (y, z)):
            if op == "-" and v > value:
                break
            s, n = {"+": add, "-": subtract, "*": times_digit}[op](value, v)
            value = {"+": value + v, "-": value - v, "*": value * v}[op]
            text.append(s + (f" {value}" if not text else ""))
            trouble += n
        else:
            break
    p, q, r = rng.sample(NAMES, 3)
    question = rng.choice(wordings).format(p=p, q=q, r=r, P=rng.choice(["She", "He", p]), t=rng.choice(THINGS), b=rng.choice(BOXES), x=x, y=y, z=z)
    return Problem("story", ("story", ops, x, y, z), question, "\n".join(text), str(value), trouble > 1)


# --- talk -----------------------------------------------------------------------------------------------------------

CAN = "I can add, subtract, multiply, compare and sort numbers, count letters, reverse words, and work with weekdays and months."
TALK = [
    ("Hello! Ask me a small task.", ["Hi", "Hello", "Hey", "Hi!", "Hello!", "hi", "hello", "Good morning", "Good evening", "Hi there", "Hello there!"]),
    ("I am uma-tiny, a very small language model.", ["Who are you?", "What are you?", "What is your name?", "who are you", "Tell me about yourself.", "Are you a model?", "What model are you?", "Introduce yourself."]),
    (CAN, ["What can you do?", "what can you do", "How can you help me?", "What are you good at?", "Help", "help", "Can you help me?", "What do you know?", "What tasks can you do?"]),
    ("The uma-serve project trained me on two processor cores.", ["Who made you?", "Who trained you?", "Where do you come from?", "How were you made?", "Who built you?"]),
    ("I am a program, but I am fine. Ask me a small task.", ["How are you?", "How are you doing?", "how are you", "How do you feel?", "Are you okay?"]),
    ("You are welcome!", ["Thanks", "Thank you!", "thanks", "Thank you very much.", "Thanks a lot!", "Great, thanks"]),
    ("Goodbye!", ["Bye", "Goodbye", "bye", "See you later!", "Good night", "Bye!"]),
    ("Very small: about two million weights.", ["How big are you?", "How many parameters do you have?", "How large are you?", "Are you small?"]),
    ("Yes, step by step. It helps me to get it right.", ["Do you think?", "Can you think?", "Why do you think?", "Do you reason?"]),
    ("That is beyond me. " + CAN, ["What is the capital of France?", "Tell me a joke.", "Write a poem about the sea.", "Who won the match?", "Explain gravity.", "Translate this to German.",
        "What is the meaning of life?", "Write a story.", "Who is the president?", "What is the weather like?", "Give me a recipe for soup.", "Write some code in Python.", "Why is the sky blue?",
        "Summarize this text.", "What time is it?", "How do I learn to swim?", "What is love?", "Who wrote Hamlet?", "Sing a song.", "Tell me about history.", "Recommend a book.", "Can you draw?"]),
]


def ask_talk(rng):
    answer, questions = TALK[rng.choice([0, 0, 1, 1, 1, 2, 2, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9])]
    return Problem("talk", None, rng.choice(questions), None, answer)


# How often each task is asked. What matters in a short task is a few tokens (which of two numbers, one remainder), so
# short ones are asked more often than long ones.
TASKS = [
    (ask_add, 9), (ask_subtract, 11), (ask_times_digit, 9), (ask_times_two_digits, 7), (ask_compare, 20), (ask_sort, 26), (ask_count, 20),
    (ask_reverse, 14), (ask_weekday, 15), (ask_month, 11), (ask_story, 11), (ask_talk, 3),
]
ASK = {f.__name__: f for f, _ in TASKS}


def problem(rng, held=False, ask=None):
    """A problem for training, or one of the held-out ones."""
    while True:
        f = ask or rng.choices([t for t, _ in TASKS], [w for _, w in TASKS])[0]
        if f is ask_times_two_digits and rng.random() > level:
            continue
        p = f(rng)
        if p.key is None or held_out(p.key) == held:
            return p


# --- thinking -------------------------------------------------------------------------------------------------------

SLIP = 0.12  # how often the first answer is a wrong one
STOP = {False: (0.60, 0.60, 0.60, 0.60, 1), True: (0.35, 0.42, 0.60, 0.70, 1)}  # chance to stop after 0, 1, … checks
# The same for uma-redundant, whose thoughts go on long after they have reached the answer: 1 to 5 checks, or 2 to 8.
REDUNDANT_STOP = {
    False: (0, 0.20, 0.25, 0.33, 0.50, 1),
    True: (0, 0, 0.14, 0.17, 0.20, 0.25, 0.33, 0.50, 1),
}
redundant = False


def slip(rng, p):
    """A wrong answer that looks like a hasty one, or None."""
    a = p.answer
    if p.task == "sort":
        v = a.split(", ")
        i = rng.randrange(len(v) - 1)
        v[i], v[i + 1] = v[i + 1], v[i]
        b = ", ".join(v)
    elif p.task in ("weekday", "month"):
        names = DAYS if p.task == "weekday" else MONTHS
        b = names[(names.index(a) + rng.choice([-1, 1])) % len(names)]
    elif p.task == "count":
        b = str(max(0, int(a) + rng.choice([-1, 1])))
    elif p.task == "reverse":
        i = rng.randrange(len(a) - 1)
        b = a[:i] + a[i + 1] + a[i] + a[i + 2 :]
    elif a.lstrip("-").isdigit():
        i = rng.randrange(a.startswith("-"), len(a))
        d = (int(a[i]) + rng.choice([-1, 1])) % 10
        b = a[:i] + str(d) + a[i + 1 :]
        if b.lstrip("-").startswith("0"):
            return None
    else:
        return None
    return b if b != a else None


def said(p, answer):
    return " " + raw(answer) if p.raw else " " + answer


def thinking(rng, p):
    """Paragraphs, each followed by a blank line."""
    right = said(p, p.answer)
    first, wrong = right, False
    if rng.random() < SLIP * level:
        b = slip(rng, p)
        if b is not None:
            first, wrong = said(p, b), True
    scratch = raw(p.steps) + "\nSo"
    text = scratch + first + ".\n\n"
    stop = (REDUNDANT_STOP if redundant else STOP)[p.hard]
    for k in range(len(stop) if wrong or rng.random() < level else 0):
        if not wrong and rng.random() < stop[k]:
            break
        r = rng.random()
        if wrong and r < 0.7:
            text += "Wait, is it" + first + "? No, it is" + right + ". So" + right + ".\n\n"
        elif r < 0.25 and len(p.steps) < 110 or wrong:
            text += "Let me do it again.\n" + scratch + right + ".\n\n"
        elif r < 0.65:
            text += "Wait, is it" + right + "? Yes. So" + right + ".\n\n"
        else:
            text += rng.choice(["Let me check. That is right.", "Let me look again. Every step is right.", "Hmm, I see no mistake."]) + " So" + right + ".\n\n"
        wrong = False
    return text


# --- conversations --------------------------------------------------------------------------------------------------

SYSTEM = ["You are a helpful assistant.", "You are uma-tiny.", "Think step by step.", "Answer briefly.", "You are a careful calculator. Answer with the result only.", "Be brief and exact.",
          "You are a helpful assistant. Always check your work.", "Today is a good day. Help the user with small tasks."]
POLITE = ["Please: {q}", "Hi, {q}", "Hello! {q}", "Tell me: {q}", "{q} Thanks!", "Quick question: {q}", "Next: {q}", "{q} Think step by step."]


def reworded(rng, q):
    r = rng.random()
    if r < 0.08:
        q = rng.choice(POLITE).format(q=q)
    elif r < 0.20:
        q = q[0].lower() + q[1:]
    if rng.random() < 0.08 and q[-1] in "?.":
        q = q[:-1]
    return q


def conversation(rng, held=False, ask=None):
    """(prompt, completion, problem) with the markers of ChatML; the completion ends before <|im_end|>."""
    prompt = ""
    if rng.random() < 0.15 * level:
        prompt += "<|im_start|>system\n" + rng.choice(SYSTEM) + "<|im_end|>\n"
    for _ in range(rng.choice([1, 1, 2]) if rng.random() < 0.10 * level else 0):
        p = problem(rng, held)
        while p.task == "sort":
            p = problem(rng, held)
        answer = raw(p.answer) if p.raw and rng.random() < 0.5 else p.answer
        prompt += f"<|im_start|>user\n{p.question}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n"
    p = problem(rng, held, ask)
    prompt += f"<|im_start|>user\n{reworded(rng, p.question) if p.steps else p.question}<|im_end|>\n<|im_start|>assistant\n"
    answer = raw(p.answer) if p.raw else p.answer
    if p.steps is None:
        r = rng.random()
        if r < 0.2:  # a client that asks for thinking
            return prompt + "<think>\n", "\n</think>\n\n" + answer, p
        if r < 0.4:  # or for none
            prompt += "<think>\n\n</think>\n\n"
        return prompt, answer, p
    return prompt, "<think>\n" + thinking(rng, p) + "</think>\n\n" + answer, p


def encode(tok, text):
    """Tokens of a text with markers."""
    import tokenizer

    out, marks = [], {s: i for i, s in enumerate(tokenizer.SPECIAL)}
    for part in tokenizer.re.split(r"(<\|im_start\|>|<\|im_end\|>|</?think>)", text):
        if part in marks:
            out.append(marks[part])
        elif part:
            out += tok.encode(part)
    return out
