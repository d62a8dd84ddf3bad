#!/usr/bin/env python3
"""Writes tests/data/jinja_cases.json: small templates and what jinja2 makes of them.

    tools/make_jinja_cases.py > tests/data/jinja_cases.json

Needs jinja2 (3.1.6 or later), set up as transformers sets it up for chat templates. Each case is {"t": template,
"v": variables, "out": text}, or {"t", "v", "error": true} where jinja2 raises; "unsupported": true where Tegula refuses by name. tests/unit/test_jinja.c replays them.
"""
import json
import os
import sys
import time
from datetime import datetime

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1753963810  # 2025-07-31 12:10:10 UTC

os.environ["TZ"] = "UTC"
time.tzset()


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            Namespace.check(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        Namespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["namespace"] = Namespace
    env.globals["strftime_now"] = lambda f: datetime.fromtimestamp(NOW).strftime(f)
    return env


VARS = {
    "s": "Hello, World", "u": "Grüße 日本 😀 ßİΣ ΑΣ", "e": "", "ws": " \t a b\n c \u00a0\u2003", "lines": "a\nb\r\nc\n\nd",
    "q": "it's", "qq": "say \"hi\"", "both": "it's \"x\"", "ctl": "\x00\x07\x1f\x7f\u0085\u2028\ufeff\U000e0001\\",
    "html": "<a href='x'>&\"", "i": 7, "neg": -7, "z": 0, "big": 9223372036854775807, "f": 2.5, "fz": 0.0,
    "t": True, "fa": False, "n": None, "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "le": [], "nested": [[1, 2], [3, [4]]],
    "d": {"b": 1, "a": 2, "C": 3}, "de": {}, "dk": {"items": 5, "get": 6, "x": {"y": {"z": "deep"}}, "pop": 1, "_p": 9},
    "users": [{"name": "Bob", "age": 30, "on": True, "tag": {"k": "x"}}, {"name": "alice", "age": 25, "on": False},
              {"name": "Carl", "age": 30, "on": True, "tag": {"k": "y"}}],
    "floats": [0.1, 1e16, 1e15, 123456789012345680.0, 1e-5, 0.0001, 1.0, -0.0, 1e100, 5e-324, 1.7976931348623157e308,
               3.141592653589793, 100.0, 12345.678],
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
                 {"role": "assistant", "content": "A"}],
}

# One expression each.
EXPRESSIONS = r"""
1|2 ** 3 ** 2|-2 ** 2|2 ** -1|7 // 2|-7 // 2|7 // -2|-7 % 3|7 % -3|7.5 // 2|-7.5 // 2|-7.5 % 2|7 / 2|6 / 2|1 / 3|10 ** 18
0.1 + 0.2|1e3|1.5e-7|1_000|1 + 2 * 3|(1 + 2) * 3|- 3|+ 3|- -3|not 1|not not ''|1 - 2 - 3|8 / 4 / 2|2 * 3 % 4|1 ~ 2 ~ 'x'
1 + 2 ~ 3|'a' ~ 1 + 2|true + true|true * 3|i - true|3.0 * 2|1 == 1.0|1 == true|0 == false|'1' == 1|none == false|1 < 2 < 3
3 > 2 > 2|1 < 2 > 0|'a' < 'b'|'a' < 'B'|'é' > 'z'|[1, 2] < [1, 3]|[1] < [1, 0]|(1, 2) == [1, 2]|[1, [2]] == [1, [2]]|{'a': 1} == {'a': 1.0}
{'a': 1, 'b': 2} == {'b': 2, 'a': 1}|1 < 'a'|none < 1|[] < {}|'a' in 'abc'|1 in l|9 not in l|'b' in d|'' in ''|1 in 'abc'|1 in i
'x' in missing|missing == missing2|missing|missing.x|missing + 1|missing['x']|missing ~ 'a'|not missing|missing or 'dflt'|missing and 1
1 and 2|0 and x|0 or 'b'|'' or none|1 or x|not 0 and 1|(1 if t else 2)|(1 if fa else 2)|(1 if fa)|('a' if fa else 'b' if fa else 'c')|1 if 0 else 2 if 1 else 3
'a' 'b' "c"|'a\nb\t\x41\u00e9\U0001F600\101\q\'\"\\'|"é"|'{{'|'}}'|'%}'|[1, 2, 3]|[1, 2,]|[]|(1,)|(1, 2)|()|{}|{'a': 1, 'b': [1, 'x']}|{1: 'a', none: 2, true: 3}
{'a': 1, 'a': 2}|{1: 'a', 1.0: 'b', true: 'c'}|{[1]: 2}|true|True|none|None|false|[true, none, 1.5, 'q']|s|u|ctl|[ctl]|[q, qq, both]|[u]|floats|d|nested|users
l[0]|l[-1]|l[5]|l['x']|l[1.0]|l[t]|s[0]|s[-1]|s[99]|u[7]|u[-1]|d['b']|d.b|d['zz']|d.zz|d.zz.y|dk.items|dk['items']|dk.get|dk['get']|dk.x.y.z|dk['x']['y'].z|dk._p|users[0].name|users.0.name|users.0['name']
s[1:4]|s[:3]|s[-5:]|s[::2]|s[::-1]|s[5:2]|s[5:2:-1]|s[-3:-1]|s[100:]|s[:-100]|u[6:8]|u[::-1]|l[1:]|l[::-1]|l[:-1]|l[0:2:1]|l[::0]|l['a':]|l[none:2]|l[t:]|(1, 2, 3)[1:]|range(10)[2:8:3]|range(10)[::-1]|range(5)[-1]|range(5)[7]
i[1:]|n[1:]|d[1:]|missing[1:]|'abc'[1]|'abc'.1|[1, 2].0
range(3)|range(1, 4)|range(5, 0, -2)|range(0)|range(3)|list|range(100001)|range(1, 10, 0)|range('a')|range(3) == range(3)|range(0) == range(2, 2)|2 in range(3)|range(3) == [0, 1, 2]
dict(a=1, b=2)|dict([['a', 1], ('b', 2)])|dict({'x': 1}, y=2)|namespace(a=1)|namespace(a=1).a|namespace(a=1).b|namespace({'a': 2}, b=3).a|namespace(_a=1)
s.upper()|s.lower()|u.upper()|u.lower()|u.title()|u.capitalize()|u.swapcase()|s.title()|"they're bill's".title()|'ﬁx ŉ'.upper()|'ﬁx'.capitalize()|s.swapcase()|'hELLO wORLD'.capitalize()
ws.strip()|[ws.strip()]|[ws.lstrip()]|[ws.rstrip()]|'xxaxx'.strip('x')|'xyaxy'.strip('yx')|'xxaxx'.lstrip('x')|'xxaxx'.rstrip('x')|'a'.strip(none)|'a'.strip(1)|'éaé'.strip('é')
s.split()|ws.split()|s.split(', ')|'a,b,c'.split(',')|'a,b,c'.split(',', 1)|'a,b,c'.rsplit(',', 1)|'a,b,c'.split(',', maxsplit=1)|'a,b,c'.split(sep=',')|' a b  c '.split(none, 1)|' a b  c '.rsplit(none, 1)|' a b  c '.rsplit()|''.split()|''.split(',')|'abc'.split('')|'a'.split(',')|',a,'.split(',')|'aXXbXXc'.rsplit('XX')|'aXXbXXc'.rsplit('XX', 0)|' a '.split(none, 0)|'日本,語'.split(',')
lines.splitlines()|lines.splitlines(true)|'a\x0bb\x1cc\u2028d'.splitlines()|'a-b-c'.partition('-')|'a-b-c'.rpartition('-')|'abc'.partition('-')|'abc'.rpartition('-')
s.startswith('Hell')|s.endswith('ld')|s.startswith(('x', 'H'))|s.endswith(())|s.startswith('')|s.startswith('e', 1)|s.startswith(1)|s.endswith('lo', 0, 5)|s.find('o')|s.find('zz')|s.rfind('o')|s.find('o', 5)|s.find('', 20)|s.find('', 12)|u.find('日')|u.rfind('Σ')|s.index('zz')|s.index('W')|s.count('l')|s.count('')|'aaaa'.count('aa')|s.count('l', 3)|s.count('l', -3, -1)
s.replace('l', 'L')|s.replace('l', 'L', 1)|s.replace('', '-')|'日本'.replace('', '-')|''.replace('', 'x')|'aaa'.replace('', '-', 2)|s.replace('World', '')|s.replace('a')|s.replace(1, 2)|','.join(ls)|','.join('abc')|','.join([1, 2])|', '.join(d)|''.join([])
'abc'.center(10) ~ '|'|'abc'.center(8, '*')|'abcd'.center(7, '*')|'abc'.ljust(5, '.')|'abc'.rjust(5)|'-5'.zfill(4)|'5'.zfill(3)|'abc'.isalpha()|'ab1'.isalpha()|'123'.isdigit()|'²'.isdigit()|'12a'.isalnum()|' \t'.isspace()|''.isspace()|'AB'.isupper()|'aB'.islower()|'a1'.islower()|'1'.isupper()|'éa'.isalpha()|'prefix-x'.removeprefix('prefix-')|'x.py'.removesuffix('.py')|'x'.removesuffix('')
'{} and {}'.format(1, 'x')|'{0}{1}{0}'.format('a', 'b')|'{name}!'.format(name='Bob')|'{{}}'.format()|'{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c')|'{:05d}'.format(42)|'{:.2f}'.format(3.14159)|'{:,}'.format(1234567)|'{:x} {:#x} {:b} {:o}'.format(255, 255, 5, 8)|'{:+d}'.format(5)|'{:e}'.format(12345.678)|'{:g}'.format(0.0001)|'{:.1%}'.format(0.256)|'{!r}'.format('x')|'{:*^9}'.format('mid')|'{}'.format()|'{'.format()|'}'.format()|'{:d}'.format('x')|'{:5}|'.format(42)|'{:.3}'.format('abcdef')|'{}'.format(1.5)|'{:8.3f}|'.format(2.5)
'%s-%s' % ('a', 1)|'%s' % 'x'|'%d' % 42|'%5d|%-5d|%05d' % (1, 2, 3)|'%.2f' % 3.14159|'%r' % 'x'|'%x %X %o' % (255, 255, 8)|'%%'|'100%%' % ()|'%(a)s' % {'a': 1}|'%s' % none|'%s %s' % ('a',)|'%s' % (1, 2)|'%d' % 'x'|'%s' % [1, 2]|'%e' % 12345.6789|'%g' % 1e20|'%+d' % 3|'% d' % 3|'%.3s' % 'abcdef'|'%10s|' % 'é'|'%i' % 3.7|'%s' % missing|'abc' % 1|'%d' % true
d.items()|d.keys()|d.values()|d.items()|list|d.keys()|list|d.get('a')|d.get('zz')|d.get('zz', 5)|d.get()|d.get([1])|d.items()|length|d.keys()|first|d.copy()|d.update({'a': 1})|d.pop('a')|d.update|d.update is defined|l.append(1)|l.pop()|l.index(1)|l.index(9)|l.count(3)|l.sort()|l.copy()|(1, 2, 1).count(1)|(1, 2).index(2)|dk.pop|d.setdefault('x', 1)|l.extend([1])|l.reverse()|d.foo()|s.foo()|i.foo()|n.foo|n()|i(1)|'a'()
s|upper|s|lower|s|title|"it's a-b (c) [d] <e> {f}"|title|s|capitalize|5|upper|none|lower|missing|upper|ws|trim|'xax'|trim('x')|'xax'|trim(chars='x')|5|trim|s|length|u|length|l|length|d|length|5|length|none|length|missing|length|range(4)|count|'abc'|center(9) ~ '|'
missing|default('x')|none|default('x')|''|default('x')|''|default('x', true)|none|d('x', boolean=true)|0|default(5, true)|missing|default|missing.x|default('y')|d.zz|default('y')|x|d(y|d('z'))
l|join|l|join(', ')|users|join(',', attribute='name')|users|join(attribute='age')|'abc'|join('-')|missing|join|5|join|d|join|l|join(1)|[none, true, 1.5]|join(' ')
s|replace('l', 'L')|s|replace('l', 'L', 1)|5|replace(5, 6)|s|replace('l')|s|replace(old='l', new='r')|none|replace('None', 'x')
d|tojson|l|tojson|s|tojson|u|tojson|ctl|tojson|html|tojson|none|tojson|true|tojson|floats|tojson|nested|tojson|(1, 2)|tojson|{}|tojson|[]|tojson|d|tojson(indent=2)|nested|tojson(indent=4)|{'a': [], 'b': {}}|tojson(indent=2)|d|tojson(indent=0)|d|tojson(indent='--')|d|tojson(indent=none)|d|tojson(separators=(',', ':'))|d|tojson(separators=(',', ':'), indent=1)|d|tojson(sort_keys=true)|u|tojson(ensure_ascii=true)|d|tojson(true, 2)|{1: 2, none: 3, true: 4, 1.5: 5}|tojson|missing|tojson|range(3)|tojson|[missing]|tojson|{(1, 2): 3}|tojson|users|tojson|d|tojson(foo=1)|d.items()|tojson|'\x7f'|tojson(ensure_ascii=true)
users|selectattr('on')|map(attribute='name')|list|users|rejectattr('on')|map(attribute='name')|list|users|selectattr('age', 'gt', 26)|map(attribute='name')|join(',')|users|selectattr('age', '==', 25)|list|length|users|selectattr('tag', 'defined')|list|length|users|selectattr('tag.k', 'equalto', 'y')|list|users|selectattr('name', 'in', ['Bob'])|list|length|users|selectattr|list|users|selectattr('zz')|list|none|selectattr('x')|list|5|selectattr('x')|list|missing|selectattr('x')|list
[0, 1, '', 'a', none]|select|list|[0, 1, 2, 3]|select('odd')|list|[0, 1, 2, 3]|reject('odd')|list|[0, 1, 2, 3]|select('divisibleby', 3)|list|[1, 'a', none]|select('string')|list|[0, 1]|reject|list|l|select('nope')|list|[]|select('nope')|list|l|select('gt', 1)|list
ls|map('upper')|list|ls|map('replace', 'a', 'z')|list|users|map(attribute='zz')|list|users|map(attribute='zz', default='-')|list|users|map(attribute='tag.k', default='-')|join(',')|l|map|list|l|map('nope')|list|[]|map('nope')|list|l|map(foo=1)|list|l|map('string')|join('+')|[[1, 2], [3]]|map('first')|list|[[1, 2], [3]]|map(attribute=0)|list|[[1, 2], [3]]|map(attribute='0')|list|[' a ', 'b ']|map('trim')|join('|')|ls|map('length')|sum
l|map('string')|length|l|map('string')|first|(l|map('string'))[0]|l|map('string') is defined|(l|select) and 1|l|map('string')|last|l|map('string')|list|last|l|list|'abc'|list|d|list|5|list|none|list
l|first|l|last|[]|first|[]|last|'abc'|first|'abc'|last|d|first|d|last|missing|first|none|first|range(3)|last|5|first
l|sort|ls|sort|ls|sort(case_sensitive=true)|l|sort(reverse=true)|l|sort(true)|users|sort(attribute='age')|map(attribute='name')|list|users|sort(attribute='name')|map(attribute='name')|list|users|sort(attribute='age', reverse=true)|map(attribute='name')|list|[1, 'a']|sort|'hello'|sort|d|sort|[2, 1.5, true]|sort|[[2, 1], [1, 2]]|sort|5|sort
ls|unique|list|['a', 'A', 'b']|unique|list|['a', 'A', 'b']|unique(true)|list|[1, 1.0, true, 2]|unique|list|users|unique(attribute='age')|map(attribute='name')|list|[[1]]|unique|list|'aab'|unique|join
d|dictsort|d|dictsort(true)|d|dictsort(by='value')|d|dictsort(reverse=true)|d|dictsort(false, 'value', true)|d|dictsort(by='x')|l|dictsort|d|items|list|missing|items|list|l|items|list|{'b': 'x', 'a': 'Y'}|dictsort(by='value')
'42'|int|'x'|int|'x'|int(5)|'42.7'|int|3.9|int|-3.9|int|none|int|none|int(7)|true|int|' 12 '|int|'1_000'|int|'ff'|int(base=16)|'0xff'|int(0, 16)|'1e3'|int|[]|int|missing|int|''|int|'+5'|int|'-5'|int|'1__0'|int|'٣'|int(9)|1e300|int(3)
'1.5'|float|'x'|float|'x'|float(2.0)|5|float|none|float|'inf'|float|'-inf'|float|'nan'|float|'1e3'|float|' 2 '|float|true|float|'1_0.5'|float|'0x10'|float|missing|float
5|string|none|string|[1, 'a']|string|missing|string|true|string ~ 'x'|1.0|string|s|string
-5|abs|-5.5|abs|true|abs|'x'|abs|2.5|round|3.5|round|2.567|round(2)|2.5|round|int|42.55|round(1)|42.55|round(1, 'floor')|42.51|round(method='ceil')|7|round|7|round(1)|'x'|round|2.675|round(2)|-2.5|round|1234.5|round(-2)|0.5|round|1.1|round(method='x')|7|round(method='floor')
l|min|l|max|ls|min|ls|max|ls|max(case_sensitive=true)|[]|min|users|min(attribute='age')|users|max(attribute='name')|[1, 'a']|max|l|sum|users|sum(attribute='age')|l|sum(start=10)|[]|sum|[1.5, 2]|sum|['a']|sum|[[1], [2]]|sum(start=[])
l|reverse|list|'abc'|reverse|d|reverse|list|range(3)|reverse|list|5|reverse|none|reverse|missing|reverse|[1, 2, 3]|reverse|first|u|reverse
'a\nb\n\nc'|indent|'a\nb'|indent(2)|'a\nb'|indent(2, true)|'a\n\nb'|indent(2, blank=true)|'a\nb'|indent('> ')|'a\nb\n'|indent|''|indent|''|indent(2, true)|5|indent|'a\r\nb'|indent(1)|missing|indent|'a\nb'|indent(width=1, first=true)
s|safe|html|safe|html|e|html|escape|5|e|(html|e)|e|(html|safe) ~ '<b>'|(html|safe) + '<b>'|'<b>' + (html|safe)|[html|safe]|(html|safe) is string|(html|safe) is escaped|html|safe|upper|html|safe|trim|html|safe|length|(html|safe) == html|'<'|e|safe|none|safe|'<'|safe|tojson
s|wordcount|''|wordcount|"it's a_b 日本"|wordcount|'one two three four'|truncate(9)|'one two three four'|truncate(9, true)|'one two three four'|truncate(9, end='..')|'short'|truncate(3)|'one two three four'|truncate(9, false, '...', 0)
[1, 2, 3, 4, 5]|batch(2)|list|[1, 2, 3, 4, 5]|batch(2, 'x')|list|[1, 2, 3, 4, 5]|slice(2)|list|[1, 2, 3, 4, 5]|slice(3, 'x')|list|[]|batch(2)|list|[]|slice(2)|list|range(7)|batch(3)|map('list')|list
users|groupby('age')|map('first')|list|users|groupby('age')|map('last')|map('length')|list|users|groupby('name')|map('first')|list|users|groupby('zz', default=1)|map('first')|list
'%s %s'|format('a', 'b')|'%(x)s'|format(x=1)|'%d'|format('x')|dk|attr('x')|s|attr('upper')()|dk|attr('zz')|users|attr('name')
missing is defined|s is defined|missing is not defined|missing is undefined|d.b is defined|d.zz is defined|n is none|n is not none|missing is none|s is string|5 is string|i is number|f is number|t is number|i is integer|t is integer|f is float|i is float|t is boolean|i is boolean|t is true|1 is true|fa is false|0 is false|d is mapping|l is mapping|l is iterable|s is iterable|i is iterable|missing is iterable|d is iterable|n is iterable|l is sequence|s is sequence|d is sequence|i is sequence|range(2) is sequence|(1, 2) is sequence|missing is sequence|d.items is callable|raise_exception is callable|s is callable|missing is callable|namespace is callable
3 is odd|4 is odd|4 is even|-3 is odd|3.0 is odd|'a' is odd|9 is divisibleby 3|9 is divisibleby(3)|10 is divisibleby 3|5 is eq 5|5 is equalto 6|5 is ne 6|5 is lt 6|5 is le 5|5 is gt 4|5 is ge 6|5 is lessthan 6|5 is greaterthan(2)|1 is in [1, 2]|'a' is in 'abc'|'x' is in d|5 is not in [1]|n is sameas none|t is sameas true|t is sameas false|1 is sameas true|'abc' is lower|'ABC' is upper|'aB' is lower|'1' is lower|'é' is lower|'upper' is filter|'nope' is filter|'odd' is test|'nope' is test|html is escaped
not s is string|s is string and i is number|s is string == true|i is odd or fa|1 + 6 is odd|l[0] is odd|'a' is eq 'a' and true|5 is eq(5)|5 is none or 1|(5 is none) if 1 else 2|s is string|string
s is nope|s|nope|'x'|pprint if fa else 1|('x'|nope) if fa else 1|s is nope if fa else 2|foo()|s.upper|lower ~ 'x'|1 if s is string else 'no'|loop|self|caller|varargs
strftime_now('%Y-%m-%d')|strftime_now('%d %b %Y %H:%M:%S')|strftime_now('')|strftime_now('%A %B %j %p %I %%')|strftime_now('%f[%z][%Z]')|strftime_now('é %d')
raise_exception('boom')|raise_exception(5)|range|dict|cycler(1, 2)|joiner('x')()|cycler()|[1, 2] + [3]|[1] + (2,)|(1,) + (2,)|'a' + 1|1 + 'a'|'ab' * 3|3 * 'ab'|[1] * 3|'a' * -1|[1] * 0|'a' - 'b'|l + none|d + d|{'a': 1}.a|{'a': 1}['a']|{'a': 1}.items()|list|('a', 'b')[1]|(1 + 2)|string|[1, 2]|length + 1|-1|abs|-(1)|abs|(-1)|abs|- l|+ s|5.0|int|1.|1.5.real
s|length > 3 and s|upper|not l|s.upper().lower().title()|s.split(',')[1].strip()|s.split(',')|last|trim|(s ~ 'x').upper()|users[0]['name'].lower()[0]|messages|selectattr('role', 'equalto', 'user')|list|length|messages[-1].role == 'assistant'|messages[1:]|map(attribute='role')|join(',')|messages|map(attribute='content')|map('lower')|list|d.items()|map('join', '=')|join('&')|d.values()|sum|d.keys()|sort|d.items()|sort|2 in d.values()|'b' in d.keys()|('b', 1) in d.items()
"a" if "b" in "abc" else "c"|[x for x in l]|lambda x: x|l[0:1][0]|l[(0)]|d[q]|d[s:]|l[0, 1]|i.real|(i)|((i))|s[i]|s[l[1]]|'\N{DASH}'|0x1F|0b11|012|1__0|'a' 1|1 2|()()|{'a'}|{a: 1}|{s: i}|**d|s(|s)|s]|[1|(1|{1|'abc|1 +|* 2|a.|a.(|a|b|a||b|a is|not|if|in|and|1 and|@|$|!|a!|a = b|a;b|\
"""

STATEMENTS = [
    # white space
    "a\n{% if t %}\nb\n{% endif %}\nc\n", "  {% if t %}  \nb\n  {% endif %}\nc", "a {%- if t -%} b {%- endif -%} c",
    "a {%+ if t +%}\n b {% endif %}\n", "  {{ i }}  \n  {{ i }}\n", "a {{- i -}} b", "x\n  {# c #}\ny\n", "x {#- c -#} y",
    "x\n {#+ c +#}\n y", "{# a\nb #}\nc", "{##}x", "{#-#} x", "{#--#} x", "a\r\nb\rc\n", "a\n\n", "\n", "", "a\n{{ i }}\n",
    "{{ i }}\n\n", "{% raw %}{{ x }}{% if %}{% endraw %}", "a\n  {%- raw -%}  \n {{ x }} \n {%- endraw -%} b",
    "{% raw %}\n a\n{% endraw %}\nb", "  {% raw %}x{% endraw %}", "{%raw%}{%endraw%}x", "{% raw %}{% raw %}{% endraw %}",
    "{% raw %}x", "{# x", "{{ x", "{% if", "{{ '}}' }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ '%}' }}{% if '%}' %}y{% endif %}",
    "\t{% if t %}\tx\t{% endif %}\t", "\u00a0{% if t %}x{% endif %}", "x \u2003{%- if t %}y{% endif %}", "{ {% if t %}}{% endif %}",
    "{{ '\n' }}x", "{{ 'a\r\nb' }}", "{%- if t %}\n\n\nx{%- endif %}\n", "a{% if t %}\n\n\nx\n{% endif %}\n\n",
    "{{i}}{{-i-}}{{ - i }}{{+i}}", "{{-i}}", "{%if t%}x{%endif%}", "{% if t -%}\n x\n{%- else %}{% endif %}", "a  {{- ' b' }}",
    # if
    "{% if 0 %}a{% elif 1 %}b{% else %}c{% endif %}", "{% if 0 %}a{% elif 0 %}b{% else %}c{% endif %}", "{% if missing %}a{% endif %}b",
    "{% if l and d %}x{% endif %}", "{% if 1, 2 %}x{% endif %}", "{% if %}x{% endif %}", "{% if 1 %}", "{% if 1 %}{% endfor %}",
    "{% else %}", "{% endif %}", "{% if 1 %}{% else %}{% elif 1 %}{% endif %}", "{% if t: %}x{% endif %}", "{% if 1 %}{% set q = 5 %}{% endif %}{{ q }}",
    # for
    "{% for x in l %}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}", "{% for x in [] %}a{% else %}b{% endfor %}",
    "{% for x in missing %}a{% else %}b{% endfor %}", "{% for x in n %}{% endfor %}", "{% for x in i %}{% endfor %}", "{% for c in 'aé😀' %}[{{ c }}]{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d|dictsort %}{{ k }}{{ v }}{% endfor %}",
    "{% for a, b in [[1, 2], [3]] %}{{ a }}{% endfor %}", "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for (a, b) in [(1, 2)] %}{{ a }}{{ b }}{% endfor %}",
    "{% for a, b in d %}{{ a }}{% endfor %}", "{% for a, b in ['xy', 'zw'] %}{{ b }}{{ a }}{% endfor %}",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in l %}{{ loop.cycle() }}{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}", "{% for x in l if x > 1 %}{{ loop.index }}{{ x }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for x in l if x > 9 %}a{% else %}none{% endfor %}", "{% for x in l %}{{ loop.nope }}{% endfor %}", "{% for x in l %}{{ loop['index'] }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% break %}", "{% continue %}",
    "{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}", "{% for x in l %}{% break %}{% else %}e{% endfor %}", "{% for x in [1] %}{% continue %}{% else %}e{% endfor %}",
    "{% set v = 1 %}{% for x in l %}{% set v = v + x %}{{ v }} {% endfor %}{{ v }}", "{% for x in l %}{% set w = x %}{% endfor %}{{ w }}", "{% for i in l %}{{ i }}{% endfor %}{{ i }}", "{% for x in l %}{% endfor %}{{ loop }}",
    "{% set ns = namespace(v=0) %}{% for x in l %}{% set ns.v = ns.v + x %}{% endfor %}{{ ns.v }}", "{% set ns = namespace() %}{% set ns.a = [1] %}{% set ns.a = ns.a + [2] %}{{ ns.a }}{{ ns }}",
    "{% set ns = namespace(n=0) %}{% for x in l if ns.n < 2 %}{% set ns.n = ns.n + 1 %}{{ x }}{% endfor %}", "{% set d.x = 1 %}", "{% set missing.x = 1 %}", "{% set ns = namespace(a=1) %}{% set ns._b = 1 %}",
    "{% for x in l recursive %}{% endfor %}x", "{% for loop in l %}{% endfor %}", "{% for x in l %}{% set loop = 1 %}{% endfor %}", "{% for x in l %}{{ loop.index }}{% for y in ls %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% for x in range(3) %}{% for y in range(x) %}{{ x }}{{ y }} {% endfor %}{% else %}e{% endfor %}", "{% for x in l %}", "{% for x l %}{% endfor %}", "{% for in l %}{% endfor %}", "{% for 1 in l %}{% endfor %}", "{% for x.y in l %}{% endfor %}",
    "{% for m in messages %}{% if m.role == 'user' %}{{ loop.previtem.role }}{{ loop.nextitem.content }}{% endif %}{% endfor %}", "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}", "{% for x in l|sort %}{{ x }}{% endfor %}",
    "{% for x in l if loop.first %}{{ x }}{% endfor %}", "{% for x in users|map(attribute='name') %}{{ loop.length }}{{ x }}{{ loop.last }}{% endfor %}", "{% for x in [3,4,5] %}{% if loop.index0 == 1 %}{{ loop.length }}{{ loop.revindex }}{% endif %}{% endfor %}",
    "{% set g = l|map('string') %}{{ g|list }}{{ g|list }}", "{% set g = l|map('string') %}{{ g|first }}{{ g|list }}", "{% set g = l|map('string') %}{{ g|length }}",
    # set
    "{% set a = 1 %}{{ a }}", "{% set a, b = 1, 2 %}{{ b }}{{ a }}", "{% set a = 1, 2 %}{{ a }}", "{% set a, b = 1 %}", "{% set a, b = [1, 2, 3] %}", "{% set (a, b) = l[:2] %}{{ a }}{{ b }}",
    "{% set a %}x{{ i }}\ny{% endset %}[{{ a }}]", "{% set a | upper %}abc{% endset %}{{ a }}", "{% set a | replace('b', 'z') | upper %}abc{% endset %}{{ a }}", "{% set a %}{% set b = 1 %}{% endset %}{{ b }}x", "{% set a = a %}{{ a }}", "{% set s = s ~ '!' %}{{ s }}",
    "{% set 'a' = 1 %}", "{% set a.b.c = 1 %}", "{% set a = %}", "{% set a 1 %}", "{% set ns = namespace(a=1) %}{% set ns.a, x = 2, 3 %}{{ ns.a }}{{ x }}", "{% set true = 1 %}", "{% set x = 1 if fa %}{{ x is defined }}", "{% set a = [] %}{% for x in l %}{% set _ = a.append(x) %}{% endfor %}",
    "{% set a = 1 %}{% if t %}{% set a = 2 %}{% endif %}{{ a }}", "{% set range = 5 %}{{ range }}", "{% for x in l %}{% if loop.first %}{% set i = 'first' %}{% endif %}{{ i }} {% endfor %}{{ i }}",
    # macro, call, filter, with
    "{% macro m(a, b=2) %}{{ a }}-{{ b }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}{{ m() }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}", "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(7) }}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m() %}{{ i }}{% set i = 99 %}{{ i }}{% endmacro %}{{ m() }}{{ i }}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% macro m() %}  x  {% endmacro %}[{{ m() }}][{{ m()|trim }}]{{ m() is string }}", "{{ m() }}{% macro m() %}{% endmacro %}", "{% macro m(x) %}{{ caller() }}{{ x }}{% endmacro %}{% call m(1) %}body{{ i }}{% endcall %}", "{% macro m() %}{% for x in l %}{{ caller(x) }},{% endfor %}{% endmacro %}{% call(y) m() %}<{{ y }}>{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}b{% endcall %}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "{% macro m() %}{% if caller %}{{ caller() }}{% endif %}y{% endmacro %}{{ m() }}{% call m() %}b{% endcall %}", "{% call i %}{% endcall %}", "{% call s.replace('a') %}{% endcall %}", "{% macro m() %}{{ m.name }}{% endmacro %}x",
    "{% for x in l %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}{{ m is defined }}", "{% macro outer() %}{% macro inner() %}in{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}", "{% macro m(a, a) %}{% endmacro %}", "{% macro m(*a) %}{% endmacro %}", "{% macro m %}{% endmacro %}", "{% macro m() %}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% macro m(x) %}{% set x = x + 1 %}{{ x }}{% endmacro %}{{ m(1) }}{{ m(*[2]) }}{{ m(**{'x': 3}) }}", "{% macro m() %}{{ loop is defined }}{% endmacro %}{% for x in l %}{{ m() }}{% endfor %}", "{{ dict(**{'a': 1}) }}{{ range(*[1, 3])|list }}",
    "{% filter upper %}abc{{ s }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}aaa{% endfilter %}", "{% filter trim %}\n  x  \n{% endfilter %}", "{% filter nope %}{% endfilter %}", "{% filter indent(2) %}a\nb{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z }}", "{% with i = i + 1 %}{{ i }}{% endwith %}{{ i }}", "{% with a = 1, b = a %}{{ b }}{% endwith %}", "{% print i, s %}", "{% generation %}x{{ i }}{% set k = 1 %}{{ k }}{% endgeneration %}{{ k }}",
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ loop.index }}{% endgeneration %}{% endif %}{% endfor %}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set x = c.reset() %}{{ c.next() }}", "{% set j = joiner() %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}",
    "{% nope %}", "{% endnope %}", "{% if 1 %}{% endmacro %}{% endif %}", "{% 1 %}", "{% %}", "{{ }}", "{{ 1, 2 }}", "{{ (1, 2) }}", "{{ 1 }} {{ 2 }", "{% set x = 5 %}{{ x }}{% set x = 'y' %}{{ x }}", "{{ namespace(a=1) }}", "{% do l %}", "{{ a b }}", "{{ [1, 2 }}", "{{ (1 }}", "{{ ] }}", "{% if (1 %}x{% endif %}", "{{ f(a=1, 2) }}", "{{ f(a=1, a=2) }}", "{{ f(*a, *b) }}",
    "{% if s is string and s is not none and s is not mapping %}ok{% endif %}", "{{ s if s is string else '' }}{{ '' if s else 'x' }}", "{% if messages[0]['role'] == 'system' %}{% set sys = messages[0]['content'] %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}{{ sys }}{% for m in rest %}{{ m.role }}{% endfor %}",
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('bad order') }}{% endif %}{% endfor %}", "{% set x = [1,2,3] %}{% set y = x[::-1] %}{% for m in y %}{{ m }}{% endfor %}", "{% for x in messages[::-1] %}{{ x.role }} {% endfor %}",
    "{% set ns = namespace(found=false) %}{% for m in messages[::-1] %}{% if not ns.found and m.role == 'user' %}{% set ns.found = true %}{% set ns.i = messages|length - 1 - loop.index0 %}{% endif %}{% endfor %}{{ ns.i }}", "{% set t2 %}a{% if fa %}{{ raise_exception('x') }}{% endif %}{% endset %}{{ t2 }}",
    "{%- for x in l -%}\n  {{ x }}\n{%- endfor -%}\n end", "{% for x in l %}\n  {{ x }}\n{% endfor %}\nend\n", "  {%- for x in l %}\n  - {{ x }}\n  {%- endfor %}\n", "{% for x in l -%}\n   {{- x -}}\n{% endfor %}", "line\n    {{ i }}\n    {% set a = 1 %}\n    {{ a }}\n", "{% set a = 1 -%}\n\n  {{ a }}", "{{ 'a' -}}   \n  {{ 'b' }}", "{# c -#}   x", "x   {#- c #}", "{% if t %}a{% endif -%}   b",
    "{% for x in l %}{% if loop.first %}{% continue %}{% endif %}{{ x }}{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}", "{% for a in [1,2] %}{% for b in [1,2,3] %}{% if b == 2 %}{% continue %}{% endif %}{{ a }}{{ b }} {% endfor %}{% endfor %}", "{% for x in l %}{% with y = x %}{% if y == 1 %}{% break %}{% endif %}{{ y }}{% endwith %}{% endfor %}",
]


# What jinja2 can do and Tegula refuses by name.
UNSUPPORTED = {"{{ self }}", "{{ i.real }}", "{{ 1.5.real }}", "{{ l[0, 1] }}", "{{ 1e300|int(3) }}", "{{ '\u0663'|int(9) }}",
               "{% for x in l recursive %}{% endfor %}x"}


def split_expressions():
    """Bars separate expressions, but a filter's bar has no space before a name that is a filter; so: split at bars and
    join again while the piece before is incomplete as a filter chain. A line can also hold exactly one expression."""
    env = environment()
    names = set(env.filters) | {"nope"}
    for line in EXPRESSIONS.strip("\n").split("\n"):
        part = ""
        for piece in line.split("|"):
            word = piece.split("(")[0].split("[")[0].split(" ")[0].split(".")[0].split(")")[0]
            if part and word in names and not (word in ("d", "e", "items") and piece[len(word):len(word) + 1] in (".", "[")):
                part += "|" + piece
            else:
                if part:
                    yield part
                part = piece
        yield part


def main():
    env = environment()
    seen, cases = set(), []
    templates = ["{{ " + e + " }}" for e in split_expressions()] + STATEMENTS
    for template in templates:
        if template in seen:
            continue
        seen.add(template)
        case = {"t": template}
        try:
            case["out"] = env.from_string(template).render(**json.loads(json.dumps(VARS)))
        except Exception:  # whatever jinja2 or Python raises: the template fails
            case["error"] = True
        if template not in UNSUPPORTED and "out" in case and (" at 0x" in case["out"] or "<class" in case["out"] or "<function" in case["out"]):
            continue  # an address in memory: no text to compare
        if template in UNSUPPORTED:
            case["unsupported"] = True
        cases.append(case)
    json.dump({"now": NOW, "variables": VARS, "cases": cases}, sys.stdout, ensure_ascii=True, indent=0)
    print()


if __name__ == "__main__":
    main()
