"""Schedules that an answer writes are judged as in chapter 08."""

from tinydist.syllabus.registry import load

SHARED = load("08_pipeline_parallel", "schedules")
OWN, Held, Makespan, OfSchedule, Verified = (
    getattr(SHARED, name) for name in ("OWN", "Held", "Makespan", "OfSchedule", "Verified")
)
asked, drawn, setting = SHARED.asked, SHARED.drawn, SHARED.setting
