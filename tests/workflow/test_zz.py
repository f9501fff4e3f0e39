from tests.workflow.test_failures import *

@pytest.mark.parametrize("step", ["charge"])
async def test_crash(closed: Shop, step):
    shop = closed
    gate = shop.hold("charge", after=True)
    async with shop.worker(graceful_shutdown=timedelta(0)):
        order = await shop.start()
        await order.approve()
        await order.when(lambda _: gate.reached.is_set())
    gate.open()
    async def show():
        d = await order.handle.describe()
        print(d.raw_description.pending_activities, d.raw_description.pending_workflow_task)
        for e in (await order.handle.fetch_history()).events: print(e.event_type, e.workflow_task_scheduled_event_attributes.task_queue if e.event_type==5 else "")
    await show()
    async with shop.worker() as shop.running:
        await asyncio.sleep(12)
        await show()
        ending = await order.ending()
        print(ending.view.stage)
        for l in order.lines(): print(l["kind"], l.get("operation"), l.get("outcome"), l.get("at"))
        print(await shop.ledger.effects(order.id))
