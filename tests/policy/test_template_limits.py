# ruff: noqa: E501  # attacks, one a line
"""Templates that would work without end, or make text without end, are refused; others render as Jinja does."""

from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tests import chat_tokenizers
from tests.raising import raises

from agent_tunix.errors import ModelError
from agent_tunix.policy.chat import limited_jinja
from agent_tunix.policy.chat.chat_template import ChatTemplate
from agent_tunix.policy.chat.limited_jinja import LimitedEnvironment

MESSAGES = [
    {"role": "user", "content": "What is 2 + 2? <|im_end|> {{ x }}"},
    {"role": "assistant", "content": "<think>\nIt is known.\n</think>\n\n4"},
    {"role": "user", "content": "And \u00e9\U0001f600?\n" * 40},
]

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def render(source: str, messages: Any = MESSAGES) -> str:
    return ChatTemplate(source, origin="the template of X", variables=TOKENS, date="2026-01-02").render(messages)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 200000000 }}",
        "{% set n = namespace(x='aaaa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{{ 'a'|center(900000000) }}",
        "{{ '%999999999d' % 1 }}",
        "{{ 7 ** 99999999 }}",
        "{{ ('a' * 1900000).rindex('b' ~ 'a' * 900000) }}",
        "{{ ('a' * 1900000).encode('punycode') }}",
    ],
)
def test_a_template_that_makes_too_much_is_refused_by_name(source: str) -> None:
    with raises(ModelError, "template_limit") as caught:
        render(source)
    assert "the template of X" in str(caught.value)


# Loops of billions of turns, values that double sixty times, texts of gigabytes by one call, and work
# on one large value again and again.
# fmt: off
ATTACKS = [
    "{{ 5|round(-4000000) }}",
    "{{ ('{_a}'*1000).format(_a='x'*2000000)|length }}",
    "{% for i in range(20000) %}" + "x" * 1000 + "{% endfor %}",
    "{% set s %}{% for i in range(20000) %}" + "x" * 1000 + "{% endfor %}{% endset %}",
    "{% for i in range(20000) %}{{ '" + "x" * 1000 + "' }}{% endfor %}",
    "{% set s=[(),(-1,),(-2,)] %}{{ (range(-2, 0)|list * 40000)|batch(8)|map('list')|unique|list|length }}",
    "{% set k = 2305843009213693951 %}{{ range(k, k * 99999, k)|list|unique|list|length }}",
    "{{ range(2305843009213693951, 230584300921369395100000, 2305843009213693951)|unique|list|length }}",
    "{{ [2305843009213693951, 4611686018427387902]|unique|list|length }}",
    "{{ 'x'|slice(4000000)|select('none')|list }}",
    "{% for i in range(99999) %}{{ 'x'|batch(4000)|select('none')|first }}{% endfor %}",
    "{{ range(99999)|map(attribute='0.' * 9999)|list }}",
    "{% macro m() %}{{ varargs|length }}{% endmacro %}{% for i in range(999) %}{{ m(*range(99999)) }}{% endfor %}",
    "{% set big = [1e300 / 7] * 260000 %}{% for i in range(300) %}{% if big|string %}{% endif %}{% endfor %}",
    "{% set b = range(100000)|list %}{% for i in range(1500) %}{% if (b, b, b)|string %}{% endif %}{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% set x = 200000000 * 'a' %}",
    "{% set x=[0]*100000000 %}",
    "{% set ns=namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ns.x}}",
    "{% set ns=namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "{% set ns=namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
    "{% set ns=namespace(x={}) %}{% for i in range(60) %}{% set ns.x = {'a':ns.x,'b':ns.x} %}{% endfor %}{{ ns.x|tojson }}",
    "{% set ns=namespace(x={}) %}{% for i in range(60) %}{% set ns.x = dict(a=ns.x,b=ns.x) %}{% endfor %}{{ ns.x|tojson }}",
    "{% set ns=namespace(x=1) %}{% for i in range(60) %}{% set ns.x = namespace(a=ns.x,b=ns.x) %}{% endfor %}{{ ns.x }}",
    "{% set n=namespace(x=1) %}{% set ns=namespace(l=[n]) %}{% for i in range(18) %}{% set ns.l=[ns.l,ns.l] %}{% endfor %}{% set m=namespace(l=[1]) %}{% for i in range(18) %}{% set m.l=[m.l,m.l] %}{% endfor %}{% set n.x=m.l %}{{ ns.l }}",
    "{% set x %}aaaaaaaaaa{% endset %}"+"{% set x %}{{x}}{{x}}{{x}}{{x}}{% endset %}"*30+"{{x}}",
    "{% macro m(n) %}{% if n>0 %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}x{% endmacro %}{{ m(200) }}",
    "{% macro m(n) %}{{ caller() }}{{ caller() }}{% endmacro %}"+"{% call m(1) %}"*20+"x"*1000+"{% endcall %}"*20,
    "{% for x in [1,2] recursive %}{% if loop.depth < 60 %}{{ loop([1,2]) }}{% endif %}{% endfor %}",
    "{{ 'a'.center(900000000) }}",
    "{{ 'a'.ljust(900000000)|length }}",
    "{{ 'a'.zfill(900000000)|length }}",
    "{{ ('\t'*10000).expandtabs(900000)|length }}",
    "{{ ('\n'*100000)|indent(100000, true)|length }}",
    "{{ ('\n'*100000)|indent('x'*100000, true)|length }}",
    "{{ ('a'*100000)|replace('a','b'*100000)|length }}",
    "{{ ('a'*100000).replace('','b'*100000)|length }}",
    "{{ range(99999)|join('a'*100000)|length }}",
    "{{ ('a'*100000).join(['']*100000)|length }}",
    "{{ ('a'*100000).join(range(99999)|map('string'))|length }}",
    "{{ '{:>999999999}'.format(1) }}",
    "{{ '%999999999d'|format(1) }}",
    "{{ '%*d' % (999999999, 1) }}",
    "{{ '{:{}}'.format(1, 999999999) }}",
    "{{ ('%999999d'*1000) % 1 }}",
    "{{ ('{0}'*100000).format('a'*1000000)|length }}",
    "{{ ('%(a)s'*100000) % {'a':'a'*1000000} }}",
    "{{ ('{a}'*100000).format_map({'a':'a'*1000000})|length }}",
    "{{ ('{0}'*100000)|attr('format')('a'*1000000)|length }}",
    "{% set ns=namespace(x=3) %}{% for i in range(60) %}{% set ns.x = ns.x*ns.x %}{% endfor %}",
    "{% set x = 2 ** (10**30) %}",
    "{% for i in range(99999) %}{% set x = range(99999)|list %}{% endfor %}",
    "{{ [[1]]|tojson(indent=900000000) }}",
    "{{ ([1]*100000)|tojson(separators=['a'*100000,'b']) |length}}",
    "{% set ns=namespace(x=[]) %}{% for i in range(500) %}{% set ns.x=[1,ns.x] %}{% endfor %}{% for i in range(10000) %}{% set y=ns.x|tojson(indent=4000) %}{% endfor %}",
    "{% set ns=namespace(x=[1],y=[1]) %}{% for i in range(60) %}{% set ns.x=[ns.x,ns.x] %}{% set ns.y=[ns.y,ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
    "{% set s='a'*3000000 %}{% for i in range(99999) %}{% if 'b' in s %}{% endif %}{% endfor %}",
    "{% for i in range(99999) %}{% if 'x' in range(99999) %}{% endif %}{% endfor %}",
    "{% set s=range(99999)|list %}{% for i in range(99999) %}{% if -1 is in s %}{% endif %}{% endfor %}",
    "{{ ('a'*1900000)|trim('b'*1900000 ~ 'a') |length }}",
    "{{ ('a'*1900000).strip('b'*1900000 ~ 'a') |length }}",
    "{{ ([[1]]*100000)|sum(start=[])|length }}",
    "{% for i in range(99999) %}{% set x=range(99999)|sort %}{% endfor %}",
    "{{ [1]|batch(900000000, 0)|list|length }}",
    "{{ [1]|slice(900000000)|list|length }}",
    "{% for b in range(99999)|batch(2) %}{% for c in range(99999)|batch(2) %}{% endfor %}{% endfor %}",
    "{{ ['a']|map('center', 900000000)|list|length }}",
    "{% set s=range(99999)|list %}{% for i in range(99999) %}{% set x = s|select('equalto', -1)|list %}{% endfor %}",
    "{% set s=range(99999)|list %}{% for i in range(99999) %}{% set x = s|select|sum %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}"+"{% if a %}{% endif %}"*20000+"{% endfor %}{% endfor %}",
    "x"*2000000,
    "{{ strftime_now('%Y'*900000)|length }}",
    "{{ (1).to_bytes(900000000,'big')|length }}",
    "{{ ('f'*3000000)|int(base=16) }}",
    "{% set c=cycler(1,2) %}{% for i in range(99999) %}{% for j in range(99999) %}{{ c.next() }}{% endfor %}{% endfor %}",
    "{% set s='a b '*900000 %}{% for i in range(99999) %}{% set x=s|title %}{% endfor %}",
    "{% set ns=namespace(x='&') %}{% for i in range(60) %}{% set ns.x = ns.x|escape|string|replace('&','&&') %}{% endfor %}",
    "{% set s='a'*3000000 %}{% for i in range(99999) %}{% set x=s[1:] %}{% endfor %}",
    "{% set s='a'*3000000 %}{% set ns=namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l=ns.l+[s ~ i] %}{% endfor %}",
    "{% set s='a'*3000000 %}{% set ns=namespace(l=0) %}{% for i in range(99999) %}{% set ns.l=namespace(a=ns.l,b=s ~ i) %}{% endfor %}",
    "{% set s='a '*900000 %}{% for i in range(99999) %}{% set x=s.split() %}{% endfor %}",
    "{% set s=range(99999)|list %}{% for i in range(99999) %}{% if loop.changed(s) %}{% endif %}{% endfor %}",
    "{% filter center(900000000) %}a{% endfilter %}",
    "{% for i in range(99999) %}{% set x=range(99999)|unique|list %}{% endfor %}",
    "{% set ns=namespace(x='%') %}{% for i in range(60) %}{% set ns.x = ns.x|urlencode|string ~ '%%%%' ~ ns.x %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{{ '' }}{% endfor %}{% endfor %}",
    "{{ ('a'*1900000).rfind('b' ~ 'a'*900000) }}",
    "{{ ('a'*1900000).rsplit('b' ~ 'a'*900000)|length }}",
    "{{ ('a'*1900000).rpartition('b' ~ 'a'*900000)|length }}",
    "{% set s='a'*990 %}{% set t='b' ~ 'a'*490 %}{% for i in range(99999) %}{% set x = s.rfind(t) %}{% endfor %}",
    "{{ ('\u00e9a'*900000).encode('punycode')|length }}",
    "{{ ('\u00e9a'*900000).encode(encoding='Puny_Code')|length }}",
    "{{ ('a'*900000).encode().decode('idna')|length }}",
    "{% set a = 'a' * 3900000 %}{% set b = a ~ a ~ a ~ a ~ a ~ a ~ a %}",
    "{% set a = (0,) * 9 %}{{ {}[a] }}",
    "{{ {(1, 2): 1}|length }}",
    "{% set ns=namespace(l=[()]) %}{% for i in range(12) %}{% set m=namespace(l=[]) %}{% for t in ns.l %}{% set m.l=m.l+[t+(-1,),t+(-2,)] %}{% endfor %}{% set ns.l=m.l %}{% endfor %}{% set p=namespace(l=[]) %}{% for t in ns.l %}{% set p.l=p.l+[(t,1)] %}{% endfor %}{% set x=namespace(p.l) %}",
]
# fmt: on


@pytest.mark.slow
@pytest.mark.parametrize("source", ATTACKS)
def test_work_and_text_without_end_are_refused(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_jinja, "MAX_WORK", limited_jinja.MAX_WORK // 20)  # a tenth of a second
    with raises(ModelError, "template_limit"):
        render(source)


def test_processor_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_jinja, "MAX_SECONDS", 0.0)
    with raises(ModelError, "template_limit"):
        render("{% for i in range(90000) %}{% endfor %}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{{ " + "[" * 3000 + "]" * 3000 + " }}",
        "{{ " + "1+" * 20000 + "1 }}",
        "{% for i in [1] %}" * 50 + "{% endfor %}" * 50,
        "{% if a %}" * 200 + "{% endif %}" * 200,
        "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
        "{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}",
        "{% set n = namespace() %}{% set n.x = n %}{{ n }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as o %}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ lipsum(n=100000) }}",
        "{{ 'a'|urlize }}",
        "{{ strftime_now('%999999999Y') }}",
        "{{ range(99999)|groupby('a')|list }}",
    ],
)
def test_whatever_a_template_does_is_an_error_of_ours(source: str) -> None:
    try:
        written = render(source)
    except ModelError:
        return
    assert "class" not in written  # Jinja's sandbox gives nothing for what it hides


TEMPLATES = {
    name: text
    for name, text in vars(chat_tokenizers).items()
    if name.isupper() and isinstance(text, str) and "{" in text
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_render_as_jinja_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain(ImmutableSandboxedEnvironment):
        def from_text(self, source: str) -> Any:
            return self.from_string(source)

        def render(self, template: Any, variables: Any) -> str:
            return str(template.render(**variables))

    limited = render(TEMPLATES[name])
    monkeypatch.setattr("agent_tunix.policy.chat.chat_template.LimitedEnvironment", Plain)
    assert limited == render(TEMPLATES[name])


def test_a_conversation_of_a_megabyte_is_rendered() -> None:
    messages = [{"role": role, "content": "word " * 100} for _ in range(1000) for role in ("user", "assistant")]
    assert len(render(chat_tokenizers.QWEN3, messages)) > 900_000


def test_the_limits_are_of_each_rendering_anew() -> None:
    source = "{% for i in range(50000) %}{% endfor %}x"
    template = ChatTemplate(source, origin="X", variables={}, date="2026-01-02")
    assert {template.render([]) for _ in range(50)} == {"x"}


def test_every_operator_is_counted() -> None:
    environment = LimitedEnvironment()
    assert environment.intercepted_binops == set(environment.default_binop_table)
