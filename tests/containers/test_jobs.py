"""Container jobs from their POST to their last event: real HTTP, a real engine, a real database."""

from __future__ import annotations

from house import House, is_signed, working


async def test_a_container_job_from_its_post_to_its_last_event(house: House) -> None:
    async with working(house.lab):
        await house.start("my-job-123", "echo hello; echo oops >&2; exit 3", meta={"userId": "user-456"})
        assert await house.until("my-job-123", "failed") == {
            "id": "my-job-123",
            "status": "failed",
            "exitCode": 3,
        }
        assert await house.heard("my-job-123", "exit") == {
            "jobId": "my-job-123",
            "exitCode": 3,
            "meta": {"userId": "user-456"},
        }
        assert house.kinds("my-job-123")[0] == "start"
        assert house.kinds("my-job-123")[-1] == "exit"
        assert (house.lines("my-job-123"), house.lines("my-job-123", "stderr")) == (["hello"], ["oops"])
        for request in house.requests("my-job-123"):
            assert is_signed(request)
            assert request.headers["ce-source"] == request.event["source"] == "orchestrator/supervisor"
            assert request.headers["ce-id"] == request.event["id"]
            assert request.headers["ce-subject"] == "my-job-123"
            assert request.headers["content-type"] == "application/cloudevents+json"
            assert request.event.keys() == {
                "specversion", "type", "source", "subject", "id", "time", "datacontenttype", "data",
            }  # fmt: skip
        await house.swept()
