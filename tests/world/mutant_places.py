# SPDX-License-Identifier: Apache-2.0
# Copyright The weft authors
"""Where sources can be changed in one small place, and how many such changes are woven into them at once (mutant.inc)."""
import re
from dataclasses import dataclass

# What is changed into what. Templates have no blanks around their < and >.
CHANGES = [
    (r' <= ', ['<']), (r' >= ', ['>']), (r' < ', ['<=']), (r' > ', ['>=']), (r' == ', ['!=']), (r' != ', ['==']),
    (r' && ', ['||']), (r' \|\| ', ['&&']), (r'\btrue\b', ['false']), (r'\bfalse\b', ['true']),
    (r' \+ 1\b(?![.x\'])', ['- 1', '']), (r' - 1\b(?![.x\'])', ['+ 1', '']), (r'(?<=[(\s&|])!(?=[\w(])', ['']),
]
RELATIONS = {'<': 'Less', '<=': 'LessEqual', '>': 'Greater', '>=': 'GreaterEqual', '==': 'Equal', '!=': 'NotEqual'}
# What the compiler computes, or what is no code.
NOT_RUN = re.compile(r'\s*(#|static_assert|template|using|namespace)|.*\b(if constexpr|constexpr [^()]*=|requires|noexcept\(|operator\b)')
OPENING, CLOSING = '([{', ')]}'
WORDS = re.compile(r'::|<=>|<<=|>>=|<=|>=|==|!=|\+=|-=|\*=|/=|%=|&=|\|=|\^=|->|&&|\|\||\w+|\S')


@dataclass(frozen=True)
class Place:
    path: str  # from the top
    line: int  # from 1
    column: int  # likewise
    at: int  # in the file
    what: str
    others: tuple

    def __str__(self):
        return f'{self.path}:{self.line}:{self.column}'


def code_of(text):
    """The text with blanks in the place of comments and of what stands in quotes, so that places stay."""
    def blank(hit):
        word = hit[0]
        if word[0] in '"\'':
            return word[0] + ' ' * (len(word) - 2) + word[-1]
        return re.sub(r'[^\n]', ' ', word)
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|(?<![\w])\'(?:[^\'\\\n]|\\.)+\'', blank, text, flags=re.DOTALL)


def places(top, rooms):
    """All that may be changed, in the order of files and lines."""
    for room in rooms:
        for path in sorted([*(top / room).glob('*.cc'), *(top / room).glob('*.h')]):
            at = 0
            for number, line in enumerate(code_of(path.read_text()).split('\n')):
                if not NOT_RUN.match(line) and not line.endswith('\\'):
                    for pattern, others in CHANGES:
                        for hit in re.finditer(pattern, line):
                            yield Place(str(path.relative_to(top)), number + 1, hit.start() + 1, at + hit.start(), hit[0], tuple(others))
                at += len(line) + 1


def operand_before(words, index, ends):
    """Where the left operand of the word at that index begins."""
    depth = 0
    for i in range(index - 1, -1, -1):
        word = words[i][0]
        if word in CLOSING and word != '}':
            depth += 1
        elif word in OPENING and depth > 0:
            depth -= 1
        elif depth == 0 and (word in ends or word in OPENING or word == '}'):
            return words[i + 1].start()
    return None


def operand_after(words, index, ends):
    """Where its right operand ends."""
    depth = 0
    for i in range(index + 1, len(words)):
        word = words[i][0]
        if word in OPENING:
            depth += 1
        elif word in CLOSING and depth > 0:
            depth -= 1
        elif depth == 0 and (word in ends or word in CLOSING):
            return words[i - 1].end()
    return None


def joined(code, place, number):
    """&& and ||: a || b is !(!a && !b), so both operands and the result are turned around where the mutant is on."""
    words = list(WORDS.finditer(code))
    index = next(i for i, word in enumerate(words) if word.start() == place.at + 1)
    sign = place.what.strip()
    ends = {';', ',', '?', ':', '=', 'return', 'throw', '+=', '|=', '&='}
    begin = operand_before(words, index, ends | ({'||'} if sign == '&&' else set()))
    end = operand_after(words, index, ends | ({'&&', '||'} if sign == '&&' else {'||'}))
    if begin is None or end is None:
        return []
    on = f'weft_mutant::on({number})'
    length = end - begin
    # At one place the wider one opens first and closes last.
    return [(begin, begin, 2, -length, '(((!!('),
            (place.at, place.at + len(place.what), 1, 0, f')) != {on}) {sign} ((!!('),
            (end, end, 0, length, f')) != {on})) != {on}')]


def edits(code, place, number, other):
    """What is put where for that mutant: from, to, and what comes first at one place."""
    what = place.what.strip()
    begin, end = place.at, place.at + len(place.what)
    if what in ('&&', '||'):
        return joined(code, place, number)
    if what in RELATIONS:
        text = f' {what} weft_mutant::{RELATIONS[what]}{{{number}}} {what} '
    elif what in ('true', 'false'):
        text = f'(weft_mutant::on({number}) == {"false" if what == "true" else "true"})'
    elif what == '!':
        text = f'weft_mutant::Not{{{number}}}->*'
    else:
        text = f' {what[0]} weft_mutant::one({number}, {-1 if other else 0})'
    return [(begin, end, 1, 0, text)]


def weave(text, mutants):
    """That file with all of these mutants (number, place, other) in it."""
    code = code_of(text)
    all_edits = sorted(edit for number, place, other in mutants for edit in edits(code, place, number, other))
    pieces, at = [], 0
    for begin, end, _, _, words in all_edits:
        if begin < at:
            raise ValueError(f'two changes of one place: {text[begin:end]}')
        pieces += [text[at:begin], words]
        at = end
    return ''.join(pieces) + text[at:]
