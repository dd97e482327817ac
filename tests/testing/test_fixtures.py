"""The fixtures of tests on ranks: values that each rank has for itself, and launch."""

pytest_plugins = ["pytester"]


def test_values_are_each_ranks_own(tests):
    source = """
@pytest.mark.ranks(5)
def test_groups(rank, world_size, group, subgroup):
    assert (rank, world_size) == (dist.get_rank(), 5) and group is dist.group.WORLD
    total = torch.tensor(rank)
    dist.all_reduce(total, group=subgroup)
    assert total == (6 if rank % 2 == 0 else 4)
    assert dist.get_rank(subgroup) == rank // 2

@pytest.mark.ranks(1)
def test_alone(subgroup): assert dist.get_process_group_ranks(subgroup) == [0]

@pytest.mark.ranks(3)
def test_folders(rank, tmp_path, rank_tmp_path):
    (rank_tmp_path / "file").write_text(str(rank))
    dist.barrier()
    assert sorted(path.read_text() for path in tmp_path.glob("*/file")) == ["0", "1", "2"]
"""
    assert tests(source).outcomes == {"passed": 3}


def test_asked_for_without_ranks(tests):
    source = """
def test_unmarked(rank): pass

@pytest.fixture
def model(world_size): pass

@pytest.mark.ranks(2)
def test_of_a_fixture(model): pass

@pytest.mark.ranks(2, init=False)
def test_too_early(group): pass
"""
    ran = tests(source)
    assert ran.outcomes == {"errors": 2, "failed": 1}
    assert "fixture 'rank' has a value on ranks only: mark the test with @pytest.mark.ranks(4)" in ran.text
    assert "fixture 'model' asks for 'world_size', which has a value on ranks only; fixtures are made once" in ran.text
    assert "fixture 'group': there is no default group yet, since the test has the mark's init=False" in ran.text


def test_a_project_may_have_fixtures_of_these_names(tests):
    source = """
@pytest.fixture
def group(): return "ours"

@pytest.fixture
def user(group): return group

def test_it(user): assert user == "ours"

@pytest.mark.ranks(2)
def test_on_ranks(user, group): assert user == group == "ours"
"""
    assert tests(source).outcomes == {"passed": 2}


def test_launch_gives_the_run(tests):
    source = """
def test_it(launch):
    run = launch(lambda: dist.all_reduce(torch.ones(1000)), 4)
    assert sum(map(sum, run.traffic)) == 4 * 2 * 3 * 1000

def test_fails(launch):
    def program():
        assert dist.get_rank() == 0
    launch(program, 2)
"""
    ran = tests(source)
    assert ran.outcomes == {"passed": 1, "failed": 1}
    assert ">       assert dist.get_rank() == 0" in ran.text and "def launch" not in ran.text
