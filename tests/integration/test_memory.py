"""A long document costs no more memory than a short one."""

import pytest

from affidavit.tools.bench.memory import forget_peaks, total_peak_kb
from affidavit.tools.examples.one_line_pages import one_line_pages
from tests.integration.conftest import Stack, recognize


@pytest.mark.slow
async def test_three_hundred_pages_need_no_more_memory_than_ten(stack: Stack) -> None:
    running = stack.read()
    short, long = one_line_pages(10), one_line_pages(300)
    async with stack.client() as stub:
        for _ in range(2):  # the steady state: engines keep what each tensor shape needs
            forget_peaks(running)
            answer = await recognize(stub, short)
        ten = total_peak_kb(running)
        forget_peaks(running)
        answer = await recognize(stub, long)
        three_hundred = total_peak_kb(running)
    assert [page.text.page_number for page in answer.pages] == list(range(1, 301))
    assert "Line 217 of many, no two pages alike" in answer.text()
    for service, before in ten.items():
        assert three_hundred[service] < before * 1.1 + 8 * 1024, (service, before, three_hundred[service])
